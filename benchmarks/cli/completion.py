"""Words that a shell completes: names of studies, and values of options. Nothing is loaded for one but the names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from dlscale.base.definitions import names


def completed_value(incomplete: str, values: Iterable[str]) -> list[CompletionItem]:
    """Those of an option's values that go on with the last word of a list with commas."""
    before, comma, word = incomplete.rpartition(",")
    given = before.split(",")
    return [
        CompletionItem(before + comma + value)
        for value in values
        if value.startswith(word) and value not in given
    ]


def completed_study(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of studies that can be run, and files of studies."""
    files = [str(path) for path in Path().glob(f"{_literal(incomplete)}*.toml")]
    return [CompletionItem(name) for name in (*names("study/studies"), *files) if name.startswith(incomplete)]


def completed_result(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the studies in the folder of results."""
    folders = Path(ctx.params.get("results") or "results").glob(f"*/{_literal(incomplete)}*/study.json")
    return [CompletionItem(path.parent.name) for path in sorted(folders)]


def _literal(text: str) -> str:
    """`text` without what means something in a pattern."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in text)
