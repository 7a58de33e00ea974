"""Made-up records as studies leave them, in any number, and launches that take no time of their own."""

import random
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from dlscale.benchmarks.launch.supervisor import PreparedLaunch
from dlscale.benchmarks.rank.launch import LaunchSpec
from dlscale.benchmarks.records.assemble import LaunchMetadata
from dlscale.benchmarks.records.record import (
    Case,
    Cell,
    Failure,
    Fingerprint,
    Phases,
    RankFacts,
    Record,
    Window,
)
from dlscale.benchmarks.records.spool import (
    CaseEnd,
    CaseResult,
    MeasuredWindow,
    Phase,
    PhaseName,
    RankInfo,
    SpoolWriter,
)
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.rules import Rules

FINGERPRINT = Fingerprint(
    digest="af80becbfb18ea9d",
    code_digest="4ceecf8e5785e9bd",
    commit="0" * 40,
    versions=dict.fromkeys(
        ("python", "dlscale", "torch", "numpy", "h5py", "mpi4py", "horovod", "mpi"), "1.2.3"
    ),
    node={
        "architecture": "x86_64",
        "cpu_model": "made up",
        "num_cores": 2,
        "memory_gib": 24,
        "kernel": "6.0",
    },
)
METADATA = LaunchMetadata(
    study="weak-scaling-00000000",
    system="local",
    fingerprint=FINGERPRINT,
    started_at="2026-11-22T03:47:20+00:00",
    order_seed=1,
    command="mpiexec -n 2 -bind-to none -genv OMP_NUM_THREADS 1 python -m dlscale.benchmarks.rank.worker "
    + "x" * 300,
    oversubscribed=False,
    environment_variables=dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
)


def cell(**fields: Any) -> Cell:
    """A cell of HEP-CNN in torch on 2 ranks, with what `fields` change."""
    num_ranks, local_batch = fields.get("num_ranks", 2), fields.get("local_batch", 2)
    usual = {
        "workload": "hep_cnn",
        "preset": "tiny",
        "framework": "torch",
        "backend": "ring",
        "environment": ".venv",
        "scaling_mode": "weak",
        "num_ranks": num_ranks,
        "cores_per_rank": 1,
        "threads_per_rank": 1,
        "local_batch": local_batch,
        "global_batch": local_batch * num_ranks,
        "precision": "fp32",
        "data": "sample_64.h5:33d1905d50ad",
    }
    return Cell(**usual | fields)


def record(
    case: Case,
    numbers: random.Random,
    *,
    num_windows: int = 10,
    slower: float = 1.0,
    failed: bool = False,
) -> Record:
    """A record of that case whose times are all different; `slower` stretches its windows."""
    num_ranks = case.cell.num_ranks

    def window(start: float) -> Window:
        starts = [start + numbers.random() * 1e-5 for _ in range(num_ranks)]
        seconds = [slower * (0.15 + numbers.random() * 0.01) for _ in range(num_ranks)]
        phase = "steady" if start else "warmup"
        return Window(phase=phase, num_steps=20, start_seconds=starts, seconds=seconds)  # type: ignore[arg-type]

    def per_rank() -> list[float | None]:
        return [numbers.random() for _ in range(num_ranks)]

    ranks = [
        RankFacts(
            rank=rank,
            local_rank=rank,
            node="node",
            boot_id="aaf2787325d1a4e1",
            affinity=[rank],
            num_threads=1,
            peak_rss_bytes=380_000_000 + numbers.randrange(10_000_000),
        )
        for rank in range(num_ranks)
    ]
    return Record(
        **{name: getattr(METADATA, name) for name in LaunchMetadata.model_fields},
        evidence="measured",
        case=case,
        attempt=1,
        ranks=ranks,
        backend_settings={"overlap": True, "bucket_bytes": 1 << 20},
        phases=Phases(**{name: per_rank() for name in Phases.model_fields}),
        steady=True,
        windows=[window(0.2 * index) for index in range(num_windows + 1)],
        final_loss=per_rank(),
        skipped_samples=[0] * num_ranks,
        gates=[],
        failure=Failure(kind="killed", rank=1, message="rank 1 was killed by signal 9") if failed else None,
    )


def open_study(folder: Path, cases: Sequence[Case]) -> Store:
    """A study's folder with its plan, and no record."""
    store = Store(folder)
    launches = [[case.model_dump(mode="json")] for case in cases]
    store.open({"schema": 1, "study": {"name": folder.name.rpartition("-")[0]}, "launches": launches})
    return store


def made_jobs(store: Store, number: int) -> list[tuple[PreparedLaunch, list[str]]]:
    """Launches of further attempts whose ranks write all at once, each beside a command that does no less by itself."""
    numbers = random.Random(2)  # noqa: S311 - numbers, not secrets
    jobs = []
    spools = store.folder / "spools"
    elsewhere = store.folder / "elsewhere"
    spools.mkdir()
    elsewhere.mkdir()
    for rank in range(2):
        _write_spool(spools, rank, numbers)
    for block in range(number):
        case = Case(cell=cell(), block=block, position=0)
        spool = store.spool_folder / case.id
        spec = LaunchSpec(cases=[case], rules=Rules(), launched_at=0.0, seconds=1.0, data=None, seed=1)
        copy, wait = f"cp {shlex.quote(str(spools))}/*", f"sleep 0.1{numbers.randrange(1000):03d}"
        command = ["sh", "-c", f"{copy} {shlex.quote(str(spool))}; {wait}"]
        job = PreparedLaunch(spec=spec, command=command, spool=spool, metadata=METADATA)
        jobs.append((job, ["sh", "-c", f"{copy} {shlex.quote(str(elsewhere))}; {wait}"]))
    return jobs


def _write_spool(folder: Path, rank: int, numbers: random.Random) -> None:
    spool = SpoolWriter(folder, rank)
    spool.write(
        RankInfo(rank=rank, local_rank=rank, pid=1, node="node", boot_id="b", affinity=[rank], num_threads=1)
    )
    for name in get_args(PhaseName):
        spool.write(Phase(name, 1.0))
    for index in range(11):
        phase = "steady" if index else "warmup"
        spool.write(MeasuredWindow(phase, 20, 0.2 * index, 0.15 + numbers.random()), case=0)
    spool.write(CaseResult(steady=True, loss=0.5, skipped=0, settings={"overlap": True}), case=0)
    spool.write(CaseEnd(peak_rss_bytes=1 << 28, load=None), case=0)
    spool.close()
