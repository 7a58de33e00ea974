"""A system in plain words: a table per section, every fact with its kind and its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from dlscale.benchmarks.quantities import Fact
from dlscale.benchmarks.system import System, facts

KINDS = {
    "text": "in the text of",
    "table": "in a table of",
    "source code": "in the code or scripts of",
    "figure": "read by eye off a figure of",
    "machine": "by the machine itself:",
    "computed": "computed with facts of",
}


def render(system: System) -> RenderableType:
    """Everything in a system's file, for `rich.console.Console.print`."""
    parts: list[RenderableType] = [f"[bold]{escape(system.title)}[/bold]"]
    sections: dict[str, BaseModel | None] = {
        "a node": system.node,
        "its devices": system.devices,
        "the network": system.fabric,
        "the file system": system.filesystem,
        "ranks on a node": system.placement,
        "how a study becomes jobs": system.policy if system.scheduler != "none" else None,
    }
    parts += _section("", _general(system))
    for title, part in sections.items():
        if part is not None:
            parts += _section(title, _rows(part))
    for name, partition in system.partitions.items():
        mark = ", the default one" if name == system.partition else ""
        parts += _section(f"partition {name}{mark}", _rows(partition))
    for name, environment in system.environments.items():
        parts += _section(f"environment {name}", _rows(environment))
    if system.sources:
        parts += _section("sources", [(key, text, "") for key, text in system.sources.items()])
    return Group(*parts)


def _section(title: str, rows: list[tuple[str, str, str]]) -> list[RenderableType]:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    if any(known for _, _, known in rows):
        table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row[: len(table.columns)]))
    return [*([f"\n[bold]{escape(title)}[/bold]"] if title else []), table]


def _general(system: System) -> list[tuple[str, str, str]]:
    recognised = [f"host {name}" for name in system.recognised.hostnames]
    recognised += [f"{name}={value}" for name, value in system.recognised.variables.items()]
    words = {
        "name": ", ".join([system.name, *system.aliases]),
        "state": system.state,
        "scheduler, launcher": f"{system.scheduler}, {system.launcher}",
        "needs an account": "yes" if system.needs_account else "no",
        "recognised by": ", ".join(recognised) or "-",
        "is this machine": "yes" if system.is_here() else "no",
    }
    rows = [(name, value, "") for name, value in words.items()]
    return [*rows, *([("nodes", *_told(system.num_nodes))] if system.num_nodes else [])]


def _rows(part: BaseModel) -> list[tuple[str, str, str]]:
    known = dict(facts(part))
    return [(name, *_told(fact)) for name, fact in known.items()] + list(_settings(part))


def _told(fact: Fact) -> tuple[str, str]:
    """A fact's value, and how it is known."""
    value = str(getattr(fact, "value", ""))
    return value, f"{KINDS[fact.kind]} {fact.source}" + (f": {fact.note}" if fact.note else "")


def _settings(part: BaseModel) -> Iterator[tuple[str, str, str]]:
    """What is not a fact: options, variables, commands, those that are set."""
    for name in type(part).model_fields:
        value = getattr(part, name)
        if value is None or isinstance(value, Fact) or value in ([], {}):
            continue
        if isinstance(value, Mapping):
            yield from (
                (f"{name} {key}", str(one), "") for key, one in value.items() if not isinstance(one, Fact)
            )
        elif isinstance(value, list):
            yield name, "\n".join(map(str, value)), ""
        else:
            yield name, str(value), ""
