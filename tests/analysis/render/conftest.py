"""Made-up studies, their pages, and a browser that may reach nothing."""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlscale.analysis.declare import HeatMap, Loss, Losses, Part, Tags
from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all, scaling
from dlscale.analysis.findings.scaling import scaling_row
from dlscale.analysis.measured import measure
from dlscale.analysis.render.html.content import Page, Section
from dlscale.analysis.render.html.document import write_page
from dlscale.analysis.render.html.page import page_of, strips
from dlscale.analysis.statistics import Interval
from dlscale.benchmarks.records.record import (
    Case,
    Cell,
    Configuration,
    Failure,
    Fingerprint,
    NodeFacts,
    Phases,
    RankFacts,
    Record,
    Window,
)

EFFICIENCY = {"none": 0.97, "ring": 0.91, "mpi": 0.84, "gloo": 0.78}
NUM_STEPS = 5
BEGAN = datetime(2026, 11, 22, 2, 10, tzinfo=UTC)


def made_record(
    *,
    backend: str = "none",
    num_ranks: int = 1,
    block: int = 0,
    rate: float = 50.0,
    workload: str = "hep_cnn",
    framework: str = "torch",
    num_windows: int = 10,
    failure: str | None = None,
    attempt: int = 1,
    host: str = "nid00001",
    seconds: float | None = None,
    minute: float = 0.0,
    study: str = "weak-scaling-1a2b3c4d",
    system: str = "local",
    digest: str = "af80becbfb18ea9d",
    **cell: Any,
) -> Record:
    """A launch of `rate` samples per second over all ranks; `seconds` replaces what its windows take."""
    batch = 8
    the_cell = Cell(
        **{
            "workload": workload,
            "preset": "small",
            "framework": framework,
            "backend": backend,
            "environment": ".venv",
            "scaling_mode": "weak",
            "num_ranks": num_ranks,
            "num_nodes": max(1, num_ranks // 4),
            "cores_per_rank": 1,
            "threads_per_rank": 1,
            "local_batch": batch,
            "global_batch": batch * num_ranks,
            "precision": "fp32",
            "data": "synthetic",
            **cell,
        }
    )
    noise = np.random.default_rng(97 * block + num_ranks)
    mean = seconds if seconds is not None else NUM_STEPS * batch * num_ranks / rate
    spread = 0.0 if seconds is not None else 0.004
    per_rank: list[float | None] = [0.2 + 0.1 * num_ranks] * num_ranks
    return Record(
        study=study,
        system=system,
        evidence="measured",
        case=Case(cell=the_cell, block=block, position=0),
        attempt=attempt,
        started_at=(BEGAN + timedelta(minutes=minute)).isoformat(),
        order_seed=1,
        fingerprint=Fingerprint(
            digest=digest,
            code_digest="4ceecf8e5785e9bd",
            commit="0123456789abcdef",
            versions={"python": "3.11.2", framework: "2.13.0", "mpi": "MPICH 5.0.2"},
            node={"cpu_model": "made up", "num_cores": 8, "memory_gib": 24},
        ),
        configuration=Configuration(
            study_digest="1a2b3c4d",
            system_digest="5e6f",
            skip_bad=False,
            budget_seconds=240,
            rules={"min_windows": 10, "min_window_seconds": 0.15},
            fabric={"bandwidth": 1.25e9},
        ),
        command="mpiexec",
        oversubscribed=False,
        ranks=[
            RankFacts(
                rank=rank,
                local_rank=rank,
                node=host,
                boot_id="b",
                affinity=[rank],
                num_threads=1,
                peak_rss_bytes=400 << 20,
            )
            for rank in range(num_ranks)
        ],
        nodes=[
            NodeFacts(
                rank=0,
                node=host,
                num_cpus=8,
                memory_bytes=24 << 30,
                cache_bytes=None,
                numa_domains=1,
                cpu_governor="performance",
                cpu_boost=None,
                transparent_huge_pages="madvise",
                clock_source="tsc",
                device_driver=None,
                devices=None,
                container=None,
                switch_path=None,
                results_filesystem="ext4",
                data_filesystem=None,
                load_before=0.4,
                load_after=None,
            )
        ],
        backend_settings={"overlap": backend == "ring", "bucket_bytes": 1 << 20},
        environment_variables={"OMP_NUM_THREADS": "1"},
        phases=Phases(**dict.fromkeys(Phases.model_fields, per_rank)),
        steady=True,
        windows=[]
        if failure
        else [made_window(index, mean, spread, the_cell, noise) for index in range(num_windows + 1)],
        final_loss=[0.5] * num_ranks,
        skipped_samples=[0] * num_ranks,
        gates=[],
        failure=Failure(kind="hang", rank=num_ranks - 1, message=failure) if failure else None,
    )


def made_window(index: int, mean: float, spread: float, cell: Cell, noise: np.random.Generator) -> Window:
    """The slowest rank takes `mean` on average; without communication each step of a rank has its own time."""
    ranks = cell.num_ranks
    slowest = mean * (1 + spread * float(noise.standard_normal()))
    together = cell.backend != "none"
    early = np.zeros(ranks) if together or not spread else np.sort(noise.uniform(0, 0.01, ranks))
    seconds = slowest * (1 - early + early[0])
    stamps = seconds[:, None] / NUM_STEPS * (1 + 5 * spread * noise.standard_normal((ranks, NUM_STEPS)))
    if spread:
        stamps *= (seconds / stamps.sum(axis=1))[:, None]
    return Window(
        phase="steady" if index else "warmup",
        num_steps=NUM_STEPS,
        start_seconds=[index * mean] * ranks,
        seconds=seconds.tolist(),
        step_seconds=None if together else stamps.tolist(),
    )


def made_study(
    *,
    trainings: Sequence[tuple[str, str]] = (
        ("hep_cnn", "torch"),
        ("hep_cnn", "tensorflow"),
        ("cosmogan", "torch"),
    ),
    rank_counts: Sequence[int] = (1, 2, 4, 8),
    num_blocks: int = 6,
    efficiency: dict[str, float] | None = None,
    **fields: Any,
) -> list[Record]:
    """Every backend on all ranks; what a rank keeps falls with the logarithm of the ranks. Blocks drift alike."""
    noise = np.random.default_rng(5)
    records = []
    for which, (workload, framework) in enumerate(trainings):
        for block in range(num_blocks):
            drift = 1 + 0.08 * np.sin(block)
            for backend, kept in (efficiency or EFFICIENCY).items():
                for step, num_ranks in enumerate(rank_counts):
                    each = (
                        50 * (1 + which) * drift * (1 - (1 - kept) * (0.15 + step / 2)) * (1 + which * 0.01)
                    )
                    records.append(
                        made_record(
                            backend=backend,
                            num_ranks=num_ranks,
                            block=block,
                            rate=each * num_ranks * (1 + 0.01 * float(noise.standard_normal())),
                            workload=workload,
                            framework=framework,
                            minute=len(records) * 0.7,
                            **fields,
                        )
                    )
    return records


def interval(center: float, half: float = 0.006, n: int = 6) -> Interval:
    return Interval(center=center, low=center - half, high=center + half, level=0.95, method="paired t", n=n)


def made_losses(trainings: Sequence[tuple[str, str]], num_ranks: int = 8) -> list[Loss]:
    """Exposed communication costs most over mpi and gloo, stragglers over ring."""
    shares = {"ring": (0.02, 0.035, 0.01), "mpi": (0.02, 0.03, 0.09), "gloo": (0.02, 0.031, 0.14)}
    losses = []
    for workload, framework in trainings:
        for backend, parts in shares.items():
            names = ("co-running", "stragglers", "exposed communication")
            made = [
                Part(label=name, share=interval(share), milliseconds=interval(share * 200, 1.2))
                for name, share in zip(names, parts, strict=True)
            ]
            largest = max(made, key=lambda part: part.share.center)
            kept = 1 - sum(parts)
            losses.append(
                Loss(
                    name=backend,
                    title=f"{workload} small, {framework}, weak scaling",
                    tags=Tags(workload=workload, framework=framework, backend=backend),
                    num_ranks=num_ranks,
                    evidence="measured",
                    kept=interval(kept, 0.01),
                    parts=tuple(made),
                    largest=(largest.label,),
                    sentence=(
                        f"{workload} ({framework}) on {backend}: scaling efficiency {100 * kept:.0f} % at "
                        f"{num_ranks} ranks; the largest loss is {largest.label}: "
                        f"{100 * largest.share.center:.1f} % [2.9, 4.1]."
                    ),
                )
            )
    return losses


def made_heat_map(num_ranks: int = 8, num_windows: int = 40, late: int = 5) -> HeatMap:
    noise = np.random.default_rng(3)
    values = 1 + 0.01 * noise.standard_normal((num_ranks, num_windows))
    values[late] += 0.06
    hosts = tuple(f"nid0000{1 + rank // 4}" for rank in range(num_ranks))
    return HeatMap(
        name="ranks",
        title="none, 8 ranks",
        says=f"Rank {late} on {hosts[late]} is late in all windows.",
        values=tuple(tuple(row) for row in values.tolist()),
        hosts=hosts,
        ranks=tuple(range(num_ranks)),
        late=(late,),
    )


TRAININGS = (("hep_cnn", "torch"), ("hep_cnn", "tensorflow"), ("cosmogan", "torch"))


def made_page(
    records: Sequence[Record] | None = None,
    *,
    losses: Sequence[Loss] = (),
    heat_maps: Sequence[HeatMap] = (),
    **options: Any,
) -> Page:
    """As `dlscale report` makes it, with these losses and heat maps in place of its own; the reference is the ring."""
    study = measure(made_study() if records is None else records, **{"order": ("ring",)} | options)
    page = page_of(study, collect(load_all(), study))
    if not losses:
        return page
    drawn = (Losses(name="loss-plots", losses=tuple(losses)), *heat_maps)
    planted = Section(name="waterfalls", title="Where the speed goes", blocks=drawn)
    sections = [planted if section.name == planted.name else section for section in page.sections]
    return replace(page, strips=strips(losses), sections=tuple(sections))


def made_rows() -> list[dict[str, Any]]:
    """Of `made_study()`, as `--json` has them."""
    return [scaling_row(row) for row in scaling.FINDING.of(measure(made_study()))]


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """Everything that is made up here."""
    return SimpleNamespace(
        record=made_record,
        study=made_study,
        losses=made_losses,
        heat_map=made_heat_map,
        page=made_page,
        rows=made_rows,
        interval=interval,
        TRAININGS=TRAININGS,
    )


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A `browser.Browser`, one for all tests."""
    specification = importlib.util.spec_from_file_location("browser", Path(__file__).with_name("browser.py"))
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    with module.chromium() as found:
        yield found


@pytest.fixture
def wrote(tmp_path: Path) -> Callable[..., Path]:
    """Where the page lies that it is given."""

    def write(page: Page, name: str = "report.html") -> Path:
        write_page(page, tmp_path / name)
        return tmp_path / name

    return write
