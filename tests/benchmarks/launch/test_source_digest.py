"""Which code was measured: the same sources compiled elsewhere are the same code, and are told apart all the same."""

import json

import pytest

from dlscale.benchmarks.launch import probe


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An installation of one module and one compiled file: its (source digest, code digest, compiler)."""

    def describe(*, python="x = 1", compiled="1", sources=None, compiler="GNU 12.2.0"):
        (tmp_path / "module.py").write_text(python)
        (tmp_path / "_engine.so").write_text(compiled)
        (tmp_path / probe.BUILD_FILE).unlink(missing_ok=True)
        if sources:
            build = {"compiler": compiler, "sources": sources}
            (tmp_path / probe.BUILD_FILE).write_text(json.dumps(build))
        files = [tmp_path / "module.py", tmp_path / "_engine.so"]
        monkeypatch.setattr(probe, "_measured_files", lambda: iter(files))
        monkeypatch.setattr(probe, "_native_folder", lambda: tmp_path)
        found = probe.describe([])
        return found.source_digest, found.code_digest, found.versions.get("compiler")

    return describe


def test_the_same_sources_compiled_elsewhere(installed):
    here, elsewhere = installed(sources="s"), installed(sources="s", compiled="2", compiler="GNU 13.1.0")
    assert here[0] == elsewhere[0]
    assert here[1] != elsewhere[1]
    assert (here[2], elsewhere[2]) == ("GNU 12.2.0", "GNU 13.1.0")


def test_other_sources(installed):
    here = installed(sources="s")[0]
    assert installed(sources="t")[0] != here
    assert installed(sources="s", python="x = 2")[0] != here


def test_a_build_that_does_not_tell_its_sources_is_known_by_its_bytes(installed):
    assert installed()[2] is None
    assert installed()[0] != installed(compiled="2")[0]
    assert installed()[0] == installed()[0]
