"""`dlscale open`: a study's page in the browser, or its link where there is no browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

import click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import choose_study, results_option, system_option
from dlscale.benchmarks.cli.study_report import PAGE


@click.command("open")
@click.argument("study", required=False)
@system_option
@results_option
def open_(study: str | None, system: str | None, results: Path) -> int:
    """Open the page of STUDY (the beginning of a folder's name; default: the latest) in the browser.

    The page's link is printed, too. Where no browser can be opened, as on a login node, that is all.

    \b
    Examples:
      dlscale open
      dlscale open weak-scaling --system perlmutter
    """  # noqa: D301
    folder = choose_study(results, study, system=system)
    page = folder / PAGE
    if not page.is_file():
        raise UsageError(f"no page in {folder}; write it with: dlscale report {folder.name}")
    link = page.resolve().as_uri()
    click.echo(link)
    if not _in_browser(link):
        click.echo(
            "no browser here: open the link where there is one, or copy the page, which needs no other file"
        )
    return 0


def _in_browser(link: str) -> bool:
    """Open the link; False without a browser. One in the terminal, which would show no plots, does not count."""
    windows = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if sys.platform.startswith("linux") and not windows:
        return False
    return webbrowser.open(link)
