"""Made-up studies, their pages, and a browser that may reach nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlscale.analysis.declare import Tags
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import scaling_row
from dlscale.analysis.measured import measure
from dlscale.analysis.plots import HeatMap, Loss, Losses, Part
from dlscale.analysis.render.html.content import Page, Section
from dlscale.analysis.render.html.page import strips
from dlscale.analysis.statistics import Interval
from dlscale.benchmarks.records.record import Record
from tests.analysis.reading import page_for
from tests.made_records import in_detail, make_record, make_study

TRAININGS = (("hep_cnn", "torch"), ("hep_cnn", "tensorflow"), ("cosmogan", "torch"))
EFFICIENCY = {"none": 0.97, "ring": 0.91, "mpi": 0.84, "gloo": 0.78}
FIELDS = {"preset": "small", "study": "weak-scaling-1a2b3c4d"}
NUM_NODES = {8: 2}


def made_record(*, host: str = "n", minute: float = 0.0, num_ranks: int = 1, **fields: Any) -> Record:
    record = make_record(num_ranks=num_ranks, num_nodes=NUM_NODES.get(num_ranks, 1), **(FIELDS | fields))
    return in_detail(record, host=host, minute=minute)


def made_study(
    *,
    trainings: Sequence[tuple[str, str]] = TRAININGS,
    rank_counts: Sequence[int] = (1, 2, 4, 8),
    efficiency: dict[str, float] = EFFICIENCY,
    **fields: Any,
) -> list[Record]:
    """Every backend on all ranks; what a rank keeps falls with the logarithm of the ranks."""
    curves = {
        backend: [1 - (1 - kept) * (0.15 + step / 2) for step in range(len(rank_counts))]
        for backend, kept in efficiency.items()
    }
    common = {"efficiency": curves, "rank_counts": rank_counts, "num_nodes": NUM_NODES, **FIELDS, **fields}
    records = [
        record
        for which, (workload, framework) in enumerate(trainings)
        for record in make_study(
            rate=50 * (1 + which) * (1 + which * 0.01), workload=workload, framework=framework, **common
        )
    ]
    return [in_detail(record, minute=0.7 * index) for index, record in enumerate(records)]


def interval(center: float, half: float = 0.006, n: int = 6) -> Interval:
    return Interval(center=center, low=center - half, high=center + half, level=0.95, method="paired t", n=n)


SHARES = {"ring": (0.02, 0.035, 0.01), "mpi": (0.02, 0.03, 0.09), "gloo": (0.02, 0.031, 0.14)}


def made_losses(trainings: Sequence[tuple[str, str]]) -> list[Loss]:
    """On 8 ranks: communication and waiting costs most over mpi and gloo, stragglers over ring."""
    return [
        made_loss(Tags(workload=workload, framework=framework, backend=backend), shares)
        for workload, framework in trainings
        for backend, shares in SHARES.items()
    ]


def made_loss(tags: Tags, shares: Sequence[float]) -> Loss:
    parts = [
        Part(label=label, share=interval(share), milliseconds=interval(share * 200, 1.2))
        for label, share in zip(
            ("sharing the machine", "stragglers", "communication and waiting"), shares, strict=True
        )
    ]
    largest = max(parts, key=lambda part: part.share.center)
    return Loss(
        name=tags.backend,
        title=f"{tags.workload} small, {tags.framework}, weak scaling",
        tags=tags,
        num_ranks=8,
        evidence="measured",
        kept=interval(1 - sum(shares), 0.01),
        parts=tuple(parts),
        largest=(largest.label,),
        sentence=f"The largest loss is {largest.label}.",
    )


def made_heat_map(late: int = 5) -> HeatMap:
    values = 1 + 0.01 * np.random.default_rng(3).standard_normal((8, 40))
    values[late] += 0.06
    hosts = tuple(f"nid0000{1 + rank // 4}" for rank in range(8))
    return HeatMap(
        name="ranks",
        title="none, 8 ranks",
        says=f"Rank {late} on {hosts[late]} is late in all windows.",
        values=tuple(tuple(row) for row in values.tolist()),
        hosts=hosts,
        ranks=tuple(range(8)),
        late=(late,),
    )


def made_page(
    records: Sequence[Record] | None = None,
    *,
    losses: Sequence[Loss] = (),
    heat_maps: Sequence[HeatMap] = (),
    **options: Any,
) -> Page:
    """As `dlscale report` makes it, with these losses and heat maps in place of its own; the reference is the ring."""
    study = measure(made_study() if records is None else records, **{"order": ("ring",)} | options)
    page = page_for(study)
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
        TRAININGS=TRAININGS,
    )


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A `browser.Browser`, one for all tests."""
    from tests.analysis.render.browser import chromium  # selenium may not be there

    with chromium() as found:
        yield found
