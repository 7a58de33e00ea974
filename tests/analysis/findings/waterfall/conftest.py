"""Studies with planted losses: what every part of a waterfall should find is known."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.findings.waterfall_parts import waterfalls_of
from dlscale.analysis.launches import launches_of
from dlscale.benchmarks.records.record import Record
from tests.made_records import Window, make_record, rows_of, windows_of

DRIFT = (1.0, 0.82, 1.1, 0.95, 1.2, 0.9, 1.05, 0.85, 1.15, 1.0)
LOCAL_BATCH = 8
EVENTS = "events.h5:0123456789ab"
MS = 1e-3
LOSSES = {
    "nothing": {},
    "batch": {"batch": 0.4 * MS, "strong": True},
    "sharing the machine": {"co_running": 0.8 * MS},
    "input": {"input": 0.6 * MS},
    "late": {"delays": (1.2 * MS, -0.4 * MS, -0.4 * MS, -0.4 * MS)},
    "late in turn": {"delays": (1.2 * MS, -0.4 * MS, -0.4 * MS, -0.4 * MS), "taking_turns": True},
    "one slow rank": {"delays": (2 * MS,)},
    "exposed": {"exposed": 1.5 * MS},
    "input of one rank already": {"base_input": 0.2 * MS, "input": 0.5 * MS},
    "resident data": {"reads": False, "co_running": 0.5 * MS, "exposed": 0.3 * MS},
    "all": {"co_running": 0.8 * MS, "input": 0.6 * MS, "delays": (1 * MS,), "exposed": 1.5 * MS},
    "all in strong scaling": {
        "strong": True,
        "batch": 0.3 * MS,
        "co_running": 0.2 * MS,
        "input": 0.25 * MS,
        "base_input": 0.1 * MS,
        "delays": (0.4 * MS,),
        "exposed": 0.9 * MS,
    },
}


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Seconds per step, but for `compute`, which is per sample; all of a step on one rank of N."""

    compute: float = 1e-3
    batch: float = 0.0  # what the smaller local batch costs, strong scaling only
    co_running: float = 0.0
    base_input: float = 0.0  # waiting for input that 1 rank has already, per sample
    input: float = 0.0  # and what N ranks wait longer
    delays: Sequence[float] = ()  # of ranks in every step; their mean slows the average rank
    taking_turns: bool = False  # the delays go round from step to step, so that no rank is late in total
    exposed: float = 0.0
    num_ranks: int = 4
    strong: bool = False
    reads: bool = True
    backend: str = "ring"

    @property
    def local_batch(self) -> int:
        return LOCAL_BATCH // self.num_ranks if self.strong else LOCAL_BATCH

    @property
    def rank_delays(self) -> np.ndarray:
        return np.array([*self.delays, *[0.0] * (self.num_ranks - len(self.delays))])

    @property
    def resident_base(self) -> float:
        return self.compute * self.local_batch

    @property
    def ideal(self) -> float:
        return self.resident_base + self.base_input * self.local_batch * self.reads

    @property
    def resident(self) -> float:
        """The average rank of N."""
        return self.resident_base + self.batch + self.co_running + float(self.rank_delays.mean())

    @property
    def mean(self) -> float:
        return self.resident + (self.base_input * self.local_batch + self.input) * self.reads

    @property
    def latest(self) -> float:
        return self.mean + self.parts["stragglers"]

    @property
    def measured(self) -> float:
        return self.latest + self.exposed

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of each part."""
        return {
            **({"batch effect": self.batch} if self.strong else {}),
            "sharing the machine": self.co_running + float(self.rank_delays.mean()),
            **({"input stall": self.input} if self.reads else {}),
            "stragglers": float(self.rank_delays.max() - self.rank_delays.mean()),
            "communication and waiting": self.exposed,
        }

    @property
    def losses(self) -> dict[str, float]:
        """Each part as a share of the ideal speed."""
        return {name: seconds / self.measured for name, seconds in self.parts.items()}


def only(records):
    (found,) = waterfalls_of(launches_of(records))
    return found


def losses(found):
    return {part.name: part.loss.center for part in found.parts}


def plant(
    truth: Planted,
    *,
    num_blocks: int = 6,
    noise: float = 0.0,
    num_windows: int = 10,
    num_steps: int = 4,
    stamps: bool = True,
    controls: Sequence[str] = ("alone", "synthetic"),
    base_block: int = 0,  # of the first of the base case's blocks
    seed: int = 3,
    **fields: object,
) -> list[Record]:
    """The records of a study with planted losses; `noise` is of each launch, relative, beside a block's drift."""
    generator = np.random.default_rng(seed)
    data = EVENTS if truth.reads else "synthetic"
    mode = "strong" if truth.strong else "weak"
    ranks, local = truth.num_ranks, truth.local_batch
    late = truth.rank_delays - truth.rank_delays.mean()

    def record(block: int, seconds: np.ndarray, **cell: object) -> Record:
        """A launch whose ranks take those seconds per step, [P] or [P][K]."""
        drift = DRIFT[block % len(DRIFT)] * (1 + noise * generator.standard_normal())
        per_step = np.broadcast_to(np.atleast_2d(seconds.T).T * drift, (len(seconds), num_steps))
        wanted = stamps and cell.get("backend", "none") == "none" and cell.get("control") is None
        window = Window(
            phase="steady",
            num_steps=num_steps,
            start_seconds=[0.0] * len(seconds),
            seconds=per_step.sum(axis=1).tolist(),
            step_seconds=per_step.tolist() if wanted else None,
        )
        one = make_record(
            block=block, num_ranks=len(seconds), scaling_mode=mode, **{"data": data, **fields, **cell}
        )
        return one.model_copy(
            update={"windows": windows_of([rows_of(one.windows)[0], *[window] * num_windows])}
        )

    def single(block: int, seconds: float, **cell: object) -> Record:
        return record(block, np.array([seconds]), **cell)

    base = {"local_batch": LOCAL_BATCH}
    base_resident = truth.resident_base * LOCAL_BATCH / local
    base_seconds = truth.ideal * LOCAL_BATCH / local
    alone = {"local_batch": local, "global_batch": local, "control": "alone"}
    turns = [np.roll(late, step) for step in range(num_steps)]
    delays = np.stack(turns, axis=1) if truth.taking_turns else np.tile(late, (num_steps, 1)).T
    many = {"local_batch": local}
    found = []
    for block in range(num_blocks):
        first = block + base_block
        found.append(single(first, base_seconds, **base))
        if truth.reads and "synthetic" in controls:
            found.append(single(first, base_resident, control="synthetic", **base))
            found.append(record(block, truth.resident + delays, control="synthetic", **many))
        if truth.reads and "loader" in controls:
            fetching = truth.base_input * local
            found.append(single(first, fetching * LOCAL_BATCH / local, control="loader", **base))
            found.append(record(block, np.full(ranks, fetching + truth.input), control="loader", **many))
        if truth.strong and "alone" in controls:
            found.append(single(block, truth.ideal + truth.batch, **alone))
            if truth.reads and "synthetic" in controls:
                found.append(
                    single(block, truth.resident_base + truth.batch, **alone | {"data": "synthetic"})
                )
        found.append(record(block, truth.mean + delays, **many))
        found.append(record(block, np.full(ranks, truth.measured), backend=truth.backend, **many))
    return found
