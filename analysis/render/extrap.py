"""Step times and start-up phases in the JSON Lines format of Extra-P, one line per launch.

    {"params": {"p": 4}, "callpath": "ring->step", "metric": "time", "value": 0.0123}

Extra-P (https://github.com/extra-p/extrap) fits how a cost grows with parameters. Lines that differ only in
their value are repetitions. `p` is the number of ranks and `time` is in seconds: for `step`, the slowest rank's time
per step, a launch's median over its windows; for `start->PHASE`, the slowest rank's time, once per launch.

Version 4.2.5 rejects a file if one call path lacks a number of ranks. So each curve has its own file, and a phase
that is not known on every number of ranks is left out.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.families import Family, family_of
from dlscale.analysis.findings.startup import PHASES
from dlscale.analysis.launches import latest_good
from dlscale.analysis.records import slowest_in_phase, world_step_seconds
from dlscale.analysis.text import backend_name
from dlscale.benchmarks.records.record import Record

MIN_POINTS = 5  # different numbers of ranks that Extra-P needs
Curve = tuple[Family, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Input for one Extra-P model: one backend of a family, over the number of ranks."""

    family: Family
    name: str  # the backend, with options, servers and kind of evidence where unusual
    stem: str  # of the file; unique
    num_points: int  # different numbers of ranks
    left_out: tuple[str, ...]  # phases
    lines: tuple[str, ...]


def extrap_models(records: Iterable[Record]) -> list[Model]:
    """One model per backend and family with training results, ordered by name."""
    curves: dict[Curve, list[Record]] = {}
    for record in latest_good(records):
        if record.case.cell.control == "train":
            key = (family_of(record.case.cell, system=record.system), _name(record))
            curves.setdefault(key, []).append(record)
    stems = Counter(_stem(curve, members) for curve, members in curves.items())
    models = []
    for curve, members in sorted(curves.items(), key=lambda item: item[0]):
        stem = _stem(curve, members)
        if stems[stem] > 1:
            stem += "-" + hashlib.sha256(repr(curve).encode()).hexdigest()[:6]
        known = [phase for phase in PHASES if _everywhere(members, phase)]
        ordered = sorted(
            members, key=lambda record: (record.case.cell.num_ranks, record.study, record.case.id)
        )
        models.append(
            Model(
                family=curve[0],
                name=curve[1],
                stem=stem,
                num_points=len({record.case.cell.num_ranks for record in members}),
                left_out=tuple(phase for phase in PHASES if phase not in known),
                lines=tuple(line for record in ordered for line in _lines(record, curve[1], known)),
            )
        )
    return models


def _stem(curve: Curve, members: Sequence[Record]) -> str:
    return f"{curve[0].file_stem}-{members[0].case.cell.backend}"


def _lines(record: Record, name: str, phases: Sequence[str]) -> Iterator[str]:
    yield _line(record, f"{name}->step", float(np.median(world_step_seconds(record))))
    for phase in phases:
        if (seconds := slowest_in_phase(record.phases, phase)) is not None:
            yield _line(record, f"{name}->start->{phase}", seconds)


def _line(record: Record, callpath: str, seconds: float) -> str:
    params = {"p": record.case.cell.num_ranks}
    return json.dumps({"params": params, "callpath": callpath, "metric": "time", "value": seconds})


def _everywhere(members: Iterable[Record], phase: str) -> bool:
    """Whether the phase is known for at least one launch on every number of ranks."""
    known: dict[int, bool] = {}
    for record in members:
        num_ranks = record.case.cell.num_ranks
        known[num_ranks] = known.get(num_ranks, False) or slowest_in_phase(record.phases, phase) is not None
    return all(known.values())


def _name(record: Record) -> str:
    """The model's name, unique per curve; it contains no "->", which Extra-P reads as a call."""
    cell = record.case.cell
    servers = f" + {cell.num_servers} servers" if cell.num_servers else ""
    kind = "" if record.evidence == "measured" else f", {record.evidence}"
    return f"{backend_name(cell)}{servers}{kind}".replace("->", " to ")
