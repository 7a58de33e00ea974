"""Problems of a system's file that its schema does not refuse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular
from dlscale.base.launchers import LAUNCHERS
from dlscale.base.parsing import parse_toml
from dlscale.benchmarks.systems.system import DETECT, System, facts, load_system

FILL_IN = "FILL IN"  # begins every comment of a drafted file that asks a person for something
DATA_TYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
# Options that scripts get from the study; the short ones mean the same to Slurm, Cobalt and Flux.
_OURS = (
    "--nodes",
    "-N",
    "--time",
    "-t",
    "--account",
    "-A",
    "--ntasks",
    "-n",
    "--output",
    "-o",
    "--job-name",
    "-J",
)
_HOME = re.compile(r"~|\$\{?HOME\b|/(?:home|homes|users)(?:/|$)", re.IGNORECASE)


def shipped_systems() -> dict[str, System]:
    """All systems that dlscale knows, by the names of their files."""
    return {stem: load_system(stem) for stem in definitions.names("systems")}


def lint(name: str, *, shipped: Mapping[str, System] | None = None) -> list[str]:
    """All problems of the system of that name or alias, or in that TOML file, one line each; empty if it is fit.

    `shipped` are those whose names it must not have; whoever checks many reads them once. Raises UsageError if there is
    no such system, or no such file.
    """
    path = _path(name)
    try:
        text = read_regular(path, links=True).decode()
        content = parse_toml(text)
    except ValueError as error:
        return [f"is not valid TOML: {error}"]
    except OSError as error:
        return [f"cannot be read: {error.strerror}"]
    try:
        system = System.model_validate(content)
    except ValidationError as error:
        return definitions.problems(error)
    shipped = shipped_systems() if shipped is None else shipped
    others = [
        system for stem, system in shipped.items() if path != definitions.path_of(stem, folder="systems")
    ]
    lines = [*problems(system, others), *_unfilled(text)]
    if len(others) < len(shipped) and system.name != path.stem:
        lines.append(f"name: {system.name!r} in a file called {path.name}; they must agree")
    return lines


def problems(system: System, others: Iterable[System]) -> Iterator[str]:
    """Problems of a system that its schema accepts, by itself and with the names of `others`."""
    yield from _sources(system)
    if (system.state == "retired") != (system.retired is not None):
        given = "with" if system.retired else "without"
        yield f"state: {system.state!r} {given} retired, which says when it was switched off; retired systems have it"
    yield from _names(system, others)
    yield from _peaks(system)
    yield from _environments(system)
    if system.scheduler != "none":
        yield from _partitions(system)
        yield from _start(system)


def _unfilled(text: str) -> Iterator[str]:
    lines = [
        number for number, line in enumerate(text.splitlines(), start=1) if line.startswith(f"# {FILL_IN}")
    ]
    if lines:
        yield (
            f"{FILL_IN}: in line {', '.join(map(str, lines))}: write what is asked for, and delete the comments"
        )


def _path(name: str) -> Path:
    if not name.endswith(".toml"):
        stem = name if name in definitions.names("systems") else load_system(name).name
        return definitions.path_of(stem, folder="systems")
    if not Path(name).is_file():
        raise UsageError(f"no file {name}; give the path of a TOML file, or the name of a system")
    return Path(name)


def _sources(system: System) -> Iterator[str]:
    used = {fact.source for _, fact in facts(system)}
    for key, text in system.sources.items():
        if key not in used:
            yield f"sources.{key}: no fact names it; remove it, or say in a comment what it is good for"
        if len(text.split()) <= 1 and "/" not in text:
            yield f"sources.{key}: {text!r} does not say where to look; write the document, and its version or date"
    for place, fact in facts(system):
        if fact.kind == "computed" and not fact.note:
            yield f"{place}: computed, but its note does not say from what"


def _names(system: System, others: Iterable[System]) -> Iterator[str]:
    own = [system.name, *system.aliases]
    for name in sorted({name for name in own if own.count(name) > 1}):
        yield f"aliases: {name!r} is there twice"
    for other in others:
        for name in own:
            if name in (other.name, *other.aliases):
                yield f"aliases: {name!r} is the name of another system, {other.name} ({other.title})"


def _peaks(system: System) -> Iterator[str]:
    parts = {"node": system.node.peak, "devices": system.devices.peak if system.devices else {}}
    for place, peaks in parts.items():
        for data_type in peaks:
            if data_type not in DATA_TYPES:
                yield f"{place}.peak.{data_type}: no data type; choose from: {', '.join(DATA_TYPES)}"


def _environments(system: System) -> Iterator[str]:
    if not system.environments:
        yield "environments: there is none, so nothing can be run"
    for name, environment in system.environments.items():
        if not environment.setup.strip():
            yield f"environments.{name}.setup: empty; write the command that makes it"
    if system.has_jobs and "site" not in system.environments:
        yield "environments.site: missing; describe one on the centre's own modules and python"


def _partitions(system: System) -> Iterator[str]:
    for name, partition in system.partitions.items():
        place, nodes = f"partitions.{name}", partition.num_nodes.value
        if system.num_nodes and nodes > system.num_nodes.value:
            yield f"{place}.num_nodes: {nodes}, but the machine has {system.num_nodes.value} (num_nodes)"
        most = partition.max_nodes.value if partition.max_nodes else nodes
        if most > nodes:
            yield f"{place}.max_nodes: {most}, but the partition has {nodes} nodes"
        if partition.min_nodes and partition.min_nodes.value > most:
            yield f"{place}.min_nodes: {partition.min_nodes.value}, but a job may have {most} nodes"
        for directive in partition.directives:
            yield from _directive(f"{place}.directives", directive)


def _directive(place: str, text: str) -> Iterator[str]:
    if text.startswith("#"):
        yield f"{place}: {text!r} has the scheduler's marker, which the script adds; leave it out"
    elif re.split(r"[ =]", text.strip())[0] in _OURS:
        yield f"{place}: {text!r} is for the study to say (--nodes, --walltime, --account ...); leave it out"


def _start(system: System) -> Iterator[str]:
    fitting = () if system.launcher == DETECT else LAUNCHERS[system.launcher].schedulers
    if fitting and system.has_jobs and system.scheduler not in fitting:
        yield f"launcher: {system.launcher} does not start programs in jobs of {system.scheduler}"
    if system.has_jobs and not system.recognised.hostnames and not system.recognised.variables:
        yield "recognised: neither hostnames nor variables, so it is recognised nowhere and never submitted to"
    if system.placement and system.placement.ranks_per_node > system.num_cores():
        yield (
            f"placement.ranks_per_node: {system.placement.ranks_per_node}, but a node has {system.num_cores()} "
            "cores for them"
        )
    if system.filesystem and _HOME.search(system.filesystem.results):
        yield f"filesystem.results: {system.filesystem.results!r} is inside a home; name a scratch file system"
