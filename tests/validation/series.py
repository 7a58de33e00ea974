"""What was measured on two cores to stand beside published figures: results/reference/series/NAME.json, from studies.

    python -m tests.validation.series overlap build/series/emulated-4/overlap-*

The studies are results/reference/series/NAME.toml, run by the commands that the file repeats. A row has the interval
that a figure shows and the value of each launch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dlscale.analysis.families import Family
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.trainings import Training, trainings_of
from dlscale.analysis.launches import Block, CellLaunches
from dlscale.analysis.measured import Measured
from dlscale.analysis.statistics import LEVEL, Interval, block_ratio, median_interval, t_interval
from dlscale.base.files import write_atomically
from dlscale.benchmarks.cli.study_report import load
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.store import Store

FOLDER = Path(__file__).resolve().parents[2] / "results" / "reference" / "series"
DIGITS = 5  # of each number
IMAGES = "small ResNet-50"  # the panel of those trainings

Rows = Iterator[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What one file has: how its studies are run, and what is taken from each of them."""

    title: str
    commands: tuple[str, ...]
    rows: Callable[[Measured], Rows]


def main() -> None:
    """Write the file of the series named, from the folders of its studies in the order of their commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=SERIES)
    parser.add_argument("folders", nargs="+", type=Path)
    asked = parser.parse_args()
    series = SERIES[asked.name]
    studies = [load(Store(folder)).study for folder in asked.folders]
    content = {
        "title": series.title,
        "studies": [
            _provenance(study, command) for study, command in zip(studies, series.commands, strict=True)
        ],
        "rows": [row for study in studies for row in series.rows(study)],
    }
    path = FOLDER / f"{asked.name}.json"
    write_atomically(path, _lines(content), mode=0o644, remedy="free space")
    sys.stdout.write(f"{path}: {len(content['rows'])} rows of {len(studies)} studies\n")


def _lines(content: dict[str, Any]) -> str:
    """JSON with a line per study and row, so that a change is a line of a diff."""
    lists = {name: content[name] for name in ("studies", "rows")}
    head = json.dumps({name: value for name, value in content.items() if name not in lists})
    parts = [
        f'"{name}": [\n  ' + ",\n  ".join(json.dumps(each) for each in values) + "\n ]"
        for name, values in lists.items()
    ]
    return ",\n ".join([head[:-1], *parts]) + "\n}\n"


def _provenance(study: Measured, command: str) -> dict[str, Any]:
    """What a study ran on and with; `load` is the least, the median and the greatest average before its launches."""
    records: Sequence[Record] = sorted(study.records, key=lambda record: record.started_at)
    last = records[-1]
    loads = [record.nodes[0].load_before for record in records if record.nodes]
    known = [load for load in loads if load is not None]
    return {
        "study": study.name,
        "command": command,
        "system": last.system,
        "started": [str(records[0].started_at), str(last.started_at)],
        "launches": len(records),
        "failed": sum(record.failure is not None for record in records),
        "fingerprint": last.fingerprint.digest,
        "commit": last.fingerprint.commit,
        "versions": last.fingerprint.versions,
        "node": last.fingerprint.node,
        "load": [float(np.quantile(known, share)) for share in (0, 0.5, 1)] if known else [],
        "data_sha256": study.provenance.data_hash,
    }


def _row(
    family: Family, cell: Cell, name: str, found: Interval, values: Sequence[float], **place: Any
) -> dict[str, Any]:
    """A row; `place` has panel, evidence, x, x_unit, quantity and y_unit."""
    return {
        **place,
        "series": name,
        "system": family.system,
        "backend": cell.backend,
        "framework": cell.framework,
        "workload": f"{cell.workload} {cell.preset}",
        **_ends(found, values),
    }


def _ends(found: Interval, values: Sequence[float]) -> dict[str, Any]:
    ends = {"y": found.center, "low": found.low, "high": found.high}
    return {
        **{end: value if value is None else _rounded(value) for end, value in ends.items()},
        "n": found.n,
        "method": found.method,
        "values": [_rounded(value) for value in values],
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def overlapped(study: Measured) -> Rows:
    """Rates of exchanges during backpropagation and after it, over that without any and over each other."""
    launches = {(one.id, one.evidence): one for each in study.launches for one in each.of_kind.values()}
    by_teams: dict[str, dict[Any, Mapping[Block, float]]] = {}
    for row in scaling.FINDING.of(study):
        cell = row.cell
        if cell.control != "train" or row.throughput is None:
            continue
        teams = cell.backend_options.get("teams")
        name = cell.backend + {1: ", overlapped", 0: ", not overlapped"}.get(teams, "")
        rates = launches[cell.id, str(row.evidence)].samples_per_second
        place = {
            "panel": "2 emulated hosts",
            "evidence": row.evidence,
            "x": cell.num_nodes,
            "x_unit": "nodes",
        }
        rate = place | {"quantity": "throughput", "y_unit": "samples/s"}
        yield _row(row.family, cell, name, row.throughput, list(rates.values()), **rate)
        if cell.backend == "none":
            continue
        ratio = place | {"quantity": "relative_throughput", "y_unit": "1"}
        if row.efficiency_none:
            yield _row(row.family, cell, name, row.efficiency_none, [], **ratio)
        others = by_teams.setdefault(cell.backend, {})
        others[teams] = rates
        if len(others) == 2:
            gain = block_ratio(others[1], others[0])
            name = f"{cell.backend}, overlapped over not overlapped"
            yield _row(row.family, cell, name, gain, [], **ratio | {"panel": "gain"})


def _cells(
    study: Measured, panel: str
) -> Iterator[tuple[CellLaunches, tuple[Training, ...], dict[str, Any]]]:
    """The cells that were trained to a target, by seed, and what all their rows have."""
    for launches in study.launches:
        for kind, own in launches.of_kind.items():
            if found := trainings_of(own):
                yield own, found, {"panel": panel, "evidence": kind}


def large_batches(study: Measured) -> Rows:
    """The error after equal numbers of samples over the batch."""
    for launches, trainings, place in _cells(study, IMAGES):
        target = launches.cell.target
        if target is None or target.max_samples is None:
            continue
        warm, most = target.schedule is not None, target.max_samples
        # Evaluations come after whole steps: each batch has one within 2 % of these samples, and some one after them.
        ends = [
            min(training.solution.evaluations, key=lambda it: abs(it.samples - most))
            for training in trainings
        ]
        errors = [100 * (1 - end.metrics["top1"]) for end in ends]
        place |= {
            "x": launches.cell.global_batch,
            "x_unit": "images",
            "quantity": "top1_error",
            "y_unit": "%",
        }
        name = "gradual warm-up" if warm else "baseline" if launches.cell.num_ranks == 1 else "no warm-up"
        mean = t_interval(float(np.mean(errors)), [np.array(errors)], level=LEVEL)
        found = replace(mean, method="t, of the mean over seeds")
        yield _row(launches.family, launches.cell, name, found, errors, **place)


def losses(study: Measured) -> Rows:
    """Training loss and held-out error after each epoch; the time of an epoch over workers."""
    for launches, trainings, place in _cells(study, IMAGES):
        family, cell, name = launches.family, launches.cell, launches.cell.framework
        workers = f"{cell.num_ranks} worker{'s' * (cell.num_ranks > 1)}"
        for at, evaluation in enumerate(trainings[0].solution.evaluations):
            here = [training.solution.evaluations[at] for training in trainings]
            epoch = place | {"panel": f"{IMAGES}, {workers}", "x_unit": "epochs"}
            epoch["x"] = _rounded(trainings[0].epoch_at(evaluation) or 0.0)
            found = {
                ("training_loss", "1"): [one.loss for one in here if one.loss is not None],
                ("top1_error", "%"): [100 * (1 - one.metrics["top1"]) for one in here],
            }
            for (quantity, unit), values in found.items():
                made = {"quantity": quantity, "y_unit": unit}
                yield _row(family, cell, name, median_interval(values), values, **epoch | made)
        seconds = [one.seconds_per_epoch for one in trainings if one.seconds_per_epoch is not None]
        place |= {"x": cell.num_ranks, "x_unit": "processes", "quantity": "seconds_per_epoch", "y_unit": "s"}
        yield _row(family, cell, name, median_interval(seconds), seconds, **place)


def validated(study: Measured) -> Rows:
    """The speed-up over one worker of as many samples, validation included, paired by seed; and both parts' seconds."""
    cells = list(_cells(study, "LSTM, time with validation"))
    one = next(trainings for launches, trainings, _ in cells if launches.cell.num_ranks == 1)
    base = {training.block: _seconds(training) for training in one}
    for launches, trainings, place in cells:
        cell = launches.cell
        name = "validation on all workers"
        place |= {"x": cell.num_ranks, "x_unit": "processes"}
        own = {training.block: _seconds(training) for training in trainings}
        values = [base[block] / seconds for block, seconds in own.items() if block in base]
        yield _row(
            launches.family,
            cell,
            name,
            block_ratio(base, own),
            values,
            **place,
            quantity="speed_up",
            y_unit="1",
        )
        parts = {
            "training": [training.last.training_seconds for training in trainings],
            "validation": [training.last.evaluating_seconds for training in trainings],
        }
        for part, seconds in parts.items():
            time = place | {"panel": part, "quantity": "time_to_solution", "y_unit": "s"}
            yield _row(launches.family, cell, name, median_interval(seconds), seconds, **time)


def _seconds(training: Training) -> float:
    return training.last.training_seconds + training.last.evaluating_seconds


def _run(name: str, more: str = "") -> str:
    return f"dlscale run results/reference/series/{name}.toml --results build/series{more}"


DIGITS_FILE = " --data build/digits.bin"
HOSTS = " --system emulated-4 --nodes 2 --set emulation=link_rate=1600Mb/s --set compute=sleep:50ms,100ms"
SERIES = {
    "overlap": Series(
        title="Exchanges during backpropagation and after it, with sleep in the place of computing",
        commands=(_run("overlap", HOSTS),),
        rows=overlapped,
    ),
    "large-batch": Series(
        title="Error against the batch, with and without warm-up",
        commands=(
            _run("large-batch", DIGITS_FILE),
            _run(
                "large-batch",
                f"{DIGITS_FILE} --ranks 4,8 --set base=smallest --set target.warm_up_samples=3144",
            ),
        ),
        rows=large_batches,
    ),
    "loss-per-epoch": Series(
        title="Loss and time of each epoch",
        commands=(_run("loss-per-epoch", DIGITS_FILE),),
        rows=losses,
    ),
    "validation": Series(
        title="Validation on all workers",
        commands=(_run("validation"),),
        rows=validated,
    ),
}

if __name__ == "__main__":
    main()
