"""What each renderer of words makes of one made-up study, whole: a change of a sentence or of a layout is seen here.

After a change that is meant: `REWRITE_SNAPSHOTS=1 python -m pytest tests/analysis/render/test_snapshots.py`.
"""

import os
from pathlib import Path

import pytest

from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all
from dlscale.analysis.measured import measure
from dlscale.analysis.render.markdown import study_markdown
from dlscale.analysis.render.screen import render_full, render_screen
from tests.analysis.reading import printed

SNAPSHOTS = Path(__file__).with_name("snapshots")


@pytest.fixture(scope="module")
def study(made):
    """Three backends on 1 and 8 ranks, one launch that hung, and one case without a record."""
    records = made.study(
        trainings=(("hep_cnn", "torch"),),
        rank_counts=(1, 8),
        num_blocks=7,
        efficiency={"none": 0.97, "ring": 0.91, "gloo": 0.78},
    )
    failed = made.record(backend="ring", num_ranks=8, block=7, failure="rank 7 [died] while it waited")
    lost = failed.case.model_copy(update={"block": 8})
    planned = [*(record.case for record in [*records, failed]), lost]
    return measure([*records, failed], planned=planned, order=("ring",))


def lines(renderable):
    return "\n".join(line.rstrip() for line in printed(renderable).splitlines()) + "\n"


RENDERERS = {
    "screen.txt": lambda study, found: lines(render_screen(study, found)),
    "full.txt": lambda study, found: lines(render_full(study, found)),
    "study.md": lambda study, found: study_markdown(found, origin=study.provenance.short_line()),
}


@pytest.mark.parametrize("name", RENDERERS)
def test_a_study_reads_as_before(study, name):
    said = RENDERERS[name](study, collect(load_all(), study))
    path = SNAPSHOTS / name
    if os.environ.get("REWRITE_SNAPSHOTS"):
        path.write_text(said, encoding="utf-8")
    assert said == path.read_text(encoding="utf-8")
