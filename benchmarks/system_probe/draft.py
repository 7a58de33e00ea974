"""A system's file from what a machine said of itself: correct, and plain about what is missing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from dlscale.benchmarks.system import System
from dlscale.benchmarks.system_probe.draft_jobs import (
    default_partition,
    environments,
    filesystem,
    partitions,
    placement,
)
from dlscale.benchmarks.system_probe.draft_node import devices, fabric, node
from dlscale.benchmarks.system_probe.facts import FILL_IN, sources
from dlscale.benchmarks.system_probe.machine import Machine
from dlscale.benchmarks.system_probe.toml import Entry, Table, document

UNNAMED = "this-machine"


def draft(machine: Machine, *, name: str | None = None) -> str:
    """The file's text. It is a valid system; lines with FILL IN ask a person for what no command tells."""
    described = [
        node(machine),
        devices(machine),
        fabric(machine),
        filesystem(machine),
        *partitions(machine),
        placement(machine),
        *environments(machine),
    ]
    told = [Entry(key, text) for key, text in sources(machine, described).items()]
    text = document([_top(machine, name), _recognised(machine), Table(("sources",), told), *described])
    System.model_validate(tomllib.loads(text))
    return text


def host_pattern(hostname: str, user: str) -> str | None:
    """The host's name with * for every number and for the user's name; None if nothing else is left of it."""
    if len(user) > 2 and user != "root":
        hostname = hostname.replace(user, "*")
    pattern = re.sub(r"\*+", "*", re.sub(r"\d+", "*", hostname))
    return pattern if re.search(r"[A-Za-z]", pattern) else None


def _top(machine: Machine, name: str | None) -> Table:
    batch = machine.batch
    cluster = re.sub(r"[^a-z0-9]+", "-", (batch.cluster or "").lower()).strip("-") if batch else ""
    chosen = name or cluster or UNNAMED
    introduction = (
        f"Drafted by `dlscale system probe` on {machine.host.today}: what commands and files told of one machine.\n"
        f"Compare it with the centre's pages; lines with {FILL_IN} ask for what no command tells."
    )
    failed = "".join(f"\nNot answered: {problem}" for problem in dict.fromkeys(machine.host.problems))
    ask = f"{FILL_IN}: a name for the folder of its results, and one for people." if chosen == UNNAMED else ""
    entries = [
        Entry(comment=introduction + failed),
        Entry("name", chosen, comment=ask),
        Entry("title", chosen if chosen != UNNAMED else "this machine"),
        Entry("scheduler", batch.scheduler if batch else "none", comment=_about_scheduler(machine)),
        Entry("launcher", batch.launcher if batch else "mpiexec"),
    ]
    if batch:
        entries.append(default_partition(batch))
        entries.append(
            Entry(
                "needs_account",
                False,
                comment=f"{FILL_IN}: true if jobs must say which account they are billed to.",
            )
        )
    return Table((), entries)


def _about_scheduler(machine: Machine) -> str:
    if machine.batch:
        return f"Told by {machine.batch.told_by}."
    return "None of Slurm, Flux, LSF, Cobalt, PBS and Torque answered."


def _recognised(machine: Machine) -> Table:
    """Without a scheduler a system is wherever dlscale runs, so that nothing has to name this machine."""
    if not machine.batch:
        return Table((), [])
    pattern = host_pattern(machine.host.hostname, Path.home().name)
    entries = [
        Entry(
            comment=f"{FILL_IN}: its other log-in nodes, if their names differ; compute nodes need not match."
        )
    ]
    if pattern:
        entries.append(Entry("hostnames", [pattern]))
    if machine.batch.variables:
        entries.append(Entry("variables", dict(machine.batch.variables)))
    return Table(("recognised",), entries)
