"""Lines counted from one source to another, and that what is stored is what docs/examples hold now."""

import pandas as pd

from dlscale.analysis.findings.productivity import FINDING, STORED
from dlscale.analysis.load import Study
from dlscale.collectives.capabilities import NAMES, TABLE
from tests.analysis.findings.count_examples import DOCS, code_lines, in_page, measure_examples
from tests.made_records import make_record

AGAIN = "an example has changed: python tests/analysis/findings/count_examples.py"
KEPT = pd.read_csv(STORED, keep_default_na=False)


def test_what_is_stored_is_what_the_examples_hold():
    pd.testing.assert_frame_equal(measure_examples(), KEPT, obj=AGAIN)


def test_the_page_shows_what_is_stored():
    page = (DOCS / "measurements" / "productivity.md").read_text()
    assert in_page(page, KEPT) == page, AGAIN
    sizes = {
        name: len(code_lines((DOCS / "examples" / name / "single.py").read_text()))
        for name in ("torch", "tensorflow")
    }
    assert f"{sizes['torch']} lines of code in torch and {sizes['tensorflow']} in TensorFlow" in page


def test_every_backend_for_scripts_has_one_in_each_of_its_frameworks():
    # mpi_ps trains workloads and users' models, and has no interface for scripts; nobody has run one over xccl.
    others = ("none", "mpi_ps", "xccl")
    pairs = {
        (framework, name) for name in NAMES for framework in TABLE[name].frameworks if name not in others
    }
    assert pairs == {*zip(KEPT["framework"], KEPT["backend"], strict=True)} & pairs


def test_only_scripts_of_the_study_are_shown():
    records = [
        make_record(),
        make_record(backend="ring", num_ranks=2),
        make_record(backend="gloo", framework="tensorflow"),
    ]
    frame = FINDING.of(Study(records))
    assert list(frame["script"]) == ["torch/ring.py"]
