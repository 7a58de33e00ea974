"""`dlscale report --open`: the page in the browser, or its link where there is none."""

import sys

import pytest

from dlscale.benchmarks.cli.report import open_page


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems always have windows")
@pytest.mark.parametrize("windows", [True, False])
def test_a_page_is_opened_or_its_link_printed(tmp_path, capsys, monkeypatch, windows):
    page = tmp_path / "study 1.html"
    page.write_text("<p>")
    links = []
    monkeypatch.setattr("webbrowser.open", lambda link: links.append(link) or True)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    if windows:
        monkeypatch.setenv("DISPLAY", ":0")
    open_page(page)
    said = capsys.readouterr().out
    assert "study%201" in page.as_uri(), "a link that terminals recognise as a whole"
    if windows:
        assert (links, said) == ([page.as_uri()], "")
    else:
        assert links == []
        assert page.as_uri() in said
