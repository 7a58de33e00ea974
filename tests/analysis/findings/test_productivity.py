"""Lines counted from one source to another, and that what is stored is what docs/examples hold now."""

from dlscale.analysis.findings.productivity import STORED, stored_changes
from dlscale.analysis.measured import measure
from dlscale.collectives.capabilities import NAMES, TABLE
from tests.analysis.findings.count_examples import DOCS, changes_csv, code_lines, in_page, measure_examples
from tests.analysis.reading import data_of
from tests.made_records import make_record

AGAIN = "an example has changed: python tests/analysis/findings/count_examples.py"


def test_what_is_stored_is_what_the_examples_hold():
    assert measure_examples() == stored_changes(), AGAIN
    assert changes_csv(stored_changes()) == STORED.read_text(), AGAIN


def test_the_page_shows_what_is_stored():
    page = (DOCS / "measurements" / "productivity.md").read_text()
    assert in_page(page, stored_changes()) == page, AGAIN
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
    assert pairs - {(one.framework, one.backend) for one in stored_changes()} == set()


def test_a_report_shows_the_backends_of_its_study():
    records = [
        make_record(framework=framework, backend=backend, num_ranks=2)
        for framework, backend in (("torch", "none"), ("torch", "gloo"), ("tensorflow", "mpi"))
    ]
    table = measure(records)
    shown = data_of(table)["productivity"]
    assert [(row["framework"], row["backend"]) for row in shown] == [("tensorflow", "mpi"), ("torch", "gloo")]
    assert set(shown[0]) == {"framework", "backend", "added", "changed", "removed", "script"}
    without = measure([make_record(backend="none")])
    assert data_of(without)["productivity"] == []
