"""Made-up records with known rates, and the folders of their studies: for all tests and for the asv suite."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dlscale.benchmarks.records.cell import Case, Cell
from dlscale.benchmarks.records.record import (
    Configuration,
    Evaluation,
    Failure,
    Fingerprint,
    GradientReady,
    NodeFacts,
    Phases,
    Quantiles,
    RankFacts,
    Record,
    Solution,
    StepProfile,
)
from dlscale.benchmarks.records.windows import Windows

CONFIGURATION = Configuration(
    study_digest="1a2b3c4d",
    budget_seconds=240,
    rules={"min_windows": 10, "min_window_seconds": 0.15},
    fabric={"bandwidth": 1.25e9},
)
NODE = NodeFacts(
    node="n", num_cpus=8, memory_bytes=24 << 30, cpu_governor="performance", load_before=0.4, load_after=None,
)  # fmt: skip
BEGAN = datetime(2026, 11, 22, 2, 10, tzinfo=UTC)


class Window(NamedTuple):
    """One of a record's windows, to make some by hand."""

    phase: str
    num_steps: int
    start_seconds: Sequence[float]
    seconds: Sequence[float]
    num_applied: int | None = None
    rank_steps: Sequence[int] | None = None
    step_seconds: Sequence[Sequence[float]] | None = None  # [P][num_steps]
    bucket_seconds: Sequence[Sequence[float]] | None = None  # [P][buckets]
    foreign_cpu: float | None = None
    num_samples: int | None = None


def windows_of(rows: Sequence[Window], num_ranks: int = 1) -> Windows:
    """The columns of windows; without any, those of that many ranks."""
    num_ranks = len(rows[0].seconds) if rows else num_ranks
    steady = [row for row in rows if row.phase == "steady"]

    def of_ranks(name: str, of: Sequence[Window] = rows) -> list[list[Any]]:
        return [[getattr(row, name)[rank] for row in of] for rank in range(num_ranks)]

    def known(name: str, of: Sequence[Window] = rows) -> bool:
        return any(getattr(row, name) is not None for row in of)

    columns: dict[str, Any] = {
        "num_warm_up": len(rows) - len(steady),
        "num_steps": [row.num_steps for row in rows],
        "start_seconds": of_ranks("start_seconds"),
        "seconds": of_ranks("seconds"),
    }
    for name in filter(known, ("num_applied", "num_samples", "foreign_cpu")):
        columns[name] = [getattr(row, name) for row in rows]
    if known("rank_steps"):
        own = [row._replace(rank_steps=row.rank_steps or [row.num_steps] * num_ranks) for row in rows]
        columns["rank_steps"] = of_ranks("rank_steps", own)
    if known("step_seconds", steady):
        columns["step_seconds"] = [[*chain(*own)] for own in of_ranks("step_seconds", steady)]
    if known("bucket_seconds", steady):
        columns["bucket_seconds"] = [[*zip(*own, strict=True)] for own in of_ranks("bucket_seconds", steady)]
    return Windows.model_validate(columns)


def rows_of(windows: Windows) -> list[Window]:
    """The windows one by one."""
    rows, ends = [], windows.num_steps[windows.num_warm_up :].cumsum().astype(int)
    for place, (steady, num_steps) in enumerate(zip(windows.steady, windows.num_steps, strict=True)):
        stamps, buckets, number = None, None, place - windows.num_warm_up
        if steady and windows.step_seconds is not None:
            stamps = windows.step_seconds[ends[number] - int(num_steps) : ends[number]].T.tolist()
        if steady and windows.bucket_seconds is not None:
            buckets = windows.bucket_seconds[number].tolist()
        applied, own = windows.num_applied, windows.rank_steps
        rows.append(
            Window(
                phase="steady" if steady else "warmup",
                num_steps=int(num_steps),
                start_seconds=windows.start_seconds[place].tolist(),
                seconds=windows.seconds[place].tolist(),
                step_seconds=stamps,
                bucket_seconds=buckets,
                num_applied=None if applied is None or np.isnan(applied[place]) else int(applied[place]),
                rank_steps=None if own is None else own[place].astype(int).tolist(),
            )
        )
    return rows


def make_record(
    *,
    backend: str = "none",
    num_ranks: int = 1,
    block: int = 0,
    samples_per_second: float = 100.0,
    rank_delays: Sequence[float] = (),
    window_factors: Sequence[float] = (1.0,) * 10,
    steps_per_window: int = 5,
    start_skew: float = 0.0,
    clock_offsets: Sequence[float] = (0.0,),
    local_batch: int = 8,
    failure: str | None = None,
    attempt: int = 1,
    fingerprint: str = "f" * 12,
    evidence: str = "measured",
    steady: bool = True,
    oversubscribed: bool = False,
    peak_rss_bytes: Sequence[int] = (400 << 20,),
    skipped: Sequence[int] = (),
    overlap: bool | str | None = None,
    study: str = "weak-scaling",
    system: str = "local",
    started_at: str = "2026-11-21T07:00:00Z",
    **cell: object,
) -> Record:
    """A launch whose slowest rank needs what `samples_per_second` of all ranks together needs.

    `rank_delays` are added to a rank's seconds per window, `window_factors` multiply all of a window's.
    `start_skew` is the fraction of a window by which the last rank starts late. `clock_offsets` are those of machines,
    over which ranks are spread evenly, each since its own boot. Of `peak_rss_bytes` the last
    value is that of all further ranks; of `skipped`, samples left out by each rank, 0 is. `overlap` is what the
    backend said of its exchange.
    """
    fields = {
        "workload": "hep_cnn",
        "preset": "tiny",
        "framework": "torch",
        "environment": "default",
        "scaling_mode": "weak",
        "cores_per_rank": 1,
        "threads_per_rank": 1,
        "local_batch": local_batch,
        "global_batch": local_batch * num_ranks,
        "precision": "fp32",
        "data": "synthetic",
        **cell,
    }
    fields.setdefault("num_nodes", 1)
    the_cell = Cell.model_validate({"backend": backend, "num_ranks": num_ranks, **fields})
    delays = [*rank_delays, *[0.0] * (num_ranks - len(rank_delays))]
    seconds = steps_per_window * the_cell.global_batch / samples_per_second
    machines = [rank * len(clock_offsets) // num_ranks for rank in range(num_ranks)]
    warmup = Window(phase="warmup", num_steps=1, start_seconds=[0.0] * num_ranks, seconds=[9.0] * num_ranks)
    steady_windows = [
        Window(
            phase="steady",
            num_steps=steps_per_window,
            start_seconds=[
                clock_offsets[machines[rank]]
                + (start_skew * seconds * factor if rank == num_ranks - 1 else 0.0)
                for rank in range(num_ranks)
            ],
            seconds=[seconds * factor + delay for delay in delays],
        )
        for factor in window_factors
    ]
    per_rank: list[float | None] = [1.0] * num_ranks
    return Record(
        study=study,
        system=system,
        evidence=evidence,  # type: ignore[arg-type]
        case=Case(cell=the_cell, block=block, position=0),
        attempt=attempt,
        started_at=started_at,
        order_seed=1,
        fingerprint=Fingerprint(
            digest=fingerprint,
            commit="0123456789ab",
            versions={"torch": "2"},
            node={"cores": 2},
        ),
        command="mpiexec",
        oversubscribed=oversubscribed,
        ranks=[
            RankFacts(
                rank=rank,
                local_rank=rank,
                node="n",
                boot_id=f"b{machines[rank]}" if machines[rank] else "b",
                affinity=[rank],
                peak_rss_bytes=peak_rss_bytes[min(rank, len(peak_rss_bytes) - 1)],
            )
            for rank in range(num_ranks)
        ],
        backend_settings={} if overlap is None else {"overlap": overlap},
        environment_variables={},
        phases=Phases(
            import_backend=[0.1] * num_ranks,
            start_up=per_rank,
            connect=per_rank,
            gates=per_rank,
            first_step=per_rank,
        ),
        steady=steady,
        windows=windows_of([] if failure else [warmup, *steady_windows], num_ranks),
        skipped_samples=[*skipped, *[0] * (num_ranks - len(skipped))],
        gates=[],
        failure=Failure(kind="hang", rank=num_ranks - 1, message=failure) if failure else None,
    )


def in_detail(record: Record, *, host: str = "n", minute: float = 0.0) -> Record:
    """The record with host, start, settings and configuration, and with windows that vary by 0.4 %.

    Without communication each rank has steps of its own, and those of other ranks are up to 1 % shorter.
    """
    cell, spread = record.case.cell, 0.004
    noise = np.random.default_rng(97 * record.case.block + cell.num_ranks)
    windows = []
    for window in rows_of(record.windows):
        slowest = max(window.seconds) * (1 + spread * noise.standard_normal())
        shorter = np.sort(noise.uniform(0, 0.01, cell.num_ranks)) if cell.backend == "none" else np.zeros(1)
        seconds = np.broadcast_to(slowest * (1 - shorter + shorter[0]), cell.num_ranks)
        steps = 1 + 5 * spread * noise.standard_normal((cell.num_ranks, window.num_steps))
        steps *= (seconds / steps.sum(axis=1))[:, None]
        stamps = steps.tolist() if cell.backend == "none" else None
        windows.append(window._replace(seconds=seconds.tolist(), step_seconds=stamps))
    return record.model_copy(
        update={
            "windows": windows_of(windows, cell.num_ranks),
            "configuration": CONFIGURATION,
            "backend_settings": {"overlap": cell.backend == "ring"},
            "environment_variables": {"OMP_NUM_THREADS": "1"},
            "nodes": [NODE.model_copy(update={"node": host})],
            "ranks": [rank.model_copy(update={"node": host}) for rank in record.ranks],
            "started_at": (BEGAN + timedelta(minutes=minute)).isoformat(),
        }
    )


def profile_record(
    *,
    forward: Sequence[float] = (0.010,),
    backward: Sequence[float] = (0.030,),
    last: float = 0.028,
    stamps: float = 1.0,
    drift: float = 1.0,
    num_steps: int = 200,
    names: Sequence[str] = ("bias", "weight"),
    **fields: Any,
) -> Record:
    """A record of control `profile`: 200 steps of 33 ms of either kind, with two gradients.

    `stamps` is how much longer a stamped step and all in it takes, `drift` how much slower the steps are at the end,
    relative to the beginning, `last` when the larger gradient is complete.
    """
    seconds = [0.033 * value for value in np.repeat(np.linspace(1, drift, -(-num_steps // 2)), 2)][:num_steps]
    profile = StepProfile(
        fetched=_moment(stamps * 0.001),
        forward=[_moment(stamps * end) for end in forward],
        backward=[_moment(stamps * end) for end in backward],
        update=_moment(stamps * 0.003),
        gradients=[
            GradientReady(name=name, num_bytes=num_bytes, ready=_moment(stamps * ready))
            for name, num_bytes, ready in zip(names, (40, 4000), (0.012, last), strict=True)
        ],
        stamped_seconds=[stamps * value for value in seconds],
        plain_seconds=seconds,
    )
    record = make_record(**{"control": "profile"} | fields)
    return record.model_copy(update={"profile": None if record.failure else profile})


def _moment(seconds: float) -> Quantiles:
    return Quantiles(low=0.9 * seconds, median=seconds, high=1.2 * seconds)


TARGET = {
    "metric": "auc",
    "threshold": 0.9,
    "held_out": 0.125,
    "evaluate_every": 10,
    "max_seconds": 60.0,
    "learning_rate": 1e-3,
}


def solved(
    record: Record,
    *evaluations: dict[str, Any],
    end: str = "reached",
    set_up_seconds: float = 0.1,
    **fields: Any,
) -> Record:
    """The record of a training to a target, with evaluations of which the step, the seconds and the AUC are given."""
    batch = record.case.cell.global_batch
    found = [
        Evaluation(
            samples=one.get("samples", one["step"] * batch),
            training_seconds=one["seconds"],
            evaluating_seconds=one.get("evaluating", 0.1),
            loss=0.5,
            metrics={"auc": one["auc"]} if one["auc"] is not None else {},
            step=one["step"],
        )
        for one in evaluations
    ]
    known = {"end": end, "set_up_seconds": set_up_seconds, "evaluations": found}
    return record.model_copy(update={"solution": Solution.model_validate(known | fields)})


def make_study(
    *,
    efficiency: Mapping[str, Sequence[float] | Mapping[int, float]] | None = None,
    rank_counts: Sequence[int] = (1, 2),
    num_blocks: int = 6,
    drift: Sequence[float] = (1.0, 0.82, 1.1, 0.95, 1.2, 0.9, 1.05, 0.85, 1.15, 1.0),
    noise: float = 0.01,
    rate: float = 100.0,
    num_nodes: Mapping[int, int] | int = 1,
    global_batch: int | None = None,
    **fields: Any,
) -> list[Record]:
    """Records of every backend on every number of ranks, with a drift common to a block and a little noise.

    `efficiency` maps backend -> what each rank keeps of `rate` samples per second, on each of `rank_counts` or by
    number of ranks. `num_nodes` is by number of ranks, 1 where none is given. `global_batch` is that of strong scaling.
    """
    table = efficiency or {
        "none": (1.0, 0.98),
        "ring": (0.99, 0.92),
        "mpi": (0.985, 0.86),
        "gloo": (0.98, 0.83),
    }
    generator = np.random.default_rng(2)
    records = []
    for block in range(num_blocks):
        for backend, kept in table.items():
            by_ranks = kept if isinstance(kept, Mapping) else dict(zip(rank_counts, kept, strict=True))
            for num_ranks, share in by_ranks.items():
                wobble = 1 + noise * generator.standard_normal()
                if global_batch is not None:
                    fields |= {"scaling_mode": "strong", "local_batch": global_batch // num_ranks}
                nodes = num_nodes if isinstance(num_nodes, int) else num_nodes.get(num_ranks, 1)
                record = make_record(
                    backend=backend,
                    num_ranks=num_ranks,
                    num_nodes=nodes,
                    block=block,
                    samples_per_second=rate * num_ranks * share * drift[block % len(drift)] * wobble,
                    **fields,
                )
                records.append(record)
    return records


def write_study(folder: Path, records: Iterable[Record], *, planned: bool = False, **content: object) -> Path:
    """Write them below `folder`, and study.json with this content and, if `planned`, with their cases."""
    (folder / "records").mkdir(parents=True)
    launches = []
    for record in records:  # one after the other: the asv suite writes many
        path = folder / "records" / f"{record.case.id}.{record.attempt}.json"
        path.write_text(record.model_dump_json())
        launches.append([record.case.model_dump(mode="json")])
    (folder / "study.json").write_text(json.dumps(content | ({"launches": launches} if planned else {})))
    return folder
