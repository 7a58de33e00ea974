"""A page in the browser, or its link where there is no browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

import click


def open_page(page: Path) -> None:
    """Open the page in the browser; where none can be opened, as on a login node, print its link."""
    link = page.resolve().as_uri()
    if not _in_browser(link):
        click.echo(f"no browser here; open this link where there is one, or copy the page: {link}")


def _in_browser(link: str) -> bool:
    """Open the link; False without a browser. One in the terminal, which would show no plots, does not count."""
    windows = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if sys.platform.startswith("linux") and not windows:
        return False
    return webbrowser.open(link)
