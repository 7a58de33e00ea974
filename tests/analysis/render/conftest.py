"""A made-up study of three trainings, and a browser that may reach nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from dlscale.analysis.finding import checked
from dlscale.analysis.findings import load_all
from dlscale.analysis.load import Study
from dlscale.analysis.render import page
from tests.made_records import in_detail, make_study

TRAININGS = (("hep_cnn", "torch"), ("hep_cnn", "tensorflow"), ("cosmogan", "torch"))
EFFICIENCY = {"none": 0.97, "ring": 0.91, "mpi": 0.84, "gloo": 0.78}


def made_records(*, trainings=TRAININGS, ranks=(1, 2, 4, 8), efficiency=EFFICIENCY, **fields):
    """Every backend on all ranks; what a rank keeps falls with the logarithm of the ranks."""
    kept = {
        name: [1 - (1 - one) * (0.15 + step / 2) for step in range(len(ranks))]
        for name, one in efficiency.items()
    }
    common = {
        "efficiency": kept,
        "rank_counts": ranks,
        "preset": "small",
        "study": "weak-scaling-1a2b3c4d",
        **fields,
    }
    records = [
        record
        for which, (workload, framework) in enumerate(trainings)
        for record in make_study(
            rate=50 * (1 + which) * 1.01**which, workload=workload, framework=framework, **common
        )
    ]
    return [in_detail(record, minute=0.7 * index) for index, record in enumerate(records)]


def write_page(records, path, **options):
    """As `dlscale report` writes it; returns the study."""
    study = Study(records, **{"order": ["ring"]} | options)
    sections = page.sections_of(study, checked(study, load_all()))
    page.write(path, title=study.title, facts=page.facts_of(study), sections=sections, origin=study.origin)
    return study


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A `browser.Browser`, one for all tests."""
    from tests.analysis.render.browser import chromium  # selenium may not be there

    with chromium() as found:
        yield found
