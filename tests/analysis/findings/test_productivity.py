"""Lines counted from one source to another, and that what is stored is what docs/examples hold now."""

import pytest

from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all
from dlscale.analysis.findings.productivity import STORED, stored_changes
from dlscale.analysis.measured import measure
from dlscale.analysis.render.data import study_json
from dlscale.collectives.capabilities import NAMES, TABLE
from tests.analysis.findings.count_examples import (
    DOCS,
    changes_csv,
    code_lines,
    count_changes,
    in_page,
    measure_examples,
)

AGAIN = "an example has changed: python tests/analysis/findings/count_examples.py"


def test_blank_lines_comments_and_docstrings_are_no_code():
    source = '''"""About
several lines."""

import os  # why


def f(x):
    """Says # what."""
    # a comment
    text = "# not a comment"
    return x + len(text)  # another


class Empty:
    """Only this."""
'''
    assert code_lines(source) == [
        "import os",
        "def f(x):",
        '    text = "# not a comment"',
        "    return x + len(text)",
        "class Empty:",
    ]


def test_a_string_that_documents_nothing_is_code():
    assert code_lines('x = 1\n"""text\nmore"""\n') == ["x = 1", '"""text', 'more"""']


@pytest.mark.parametrize(
    ("after", "numbers"),
    [
        ("a = 1\nb = 2\nc = 3\n", (0, 0, 0)),
        ("a = 1  # one\n\nb = 2\nc = 3\n", (0, 0, 0)),
        ("import d\na = 1\nb = 2\nc = 3\n", (1, 0, 0)),
        ("a = 1\nc = 3\n", (0, 0, 1)),
        ("a = 1\nb = 5\nc = 3\n", (0, 1, 0)),
        ("a = 1\nb = 5\nb = 6\nb = 7\nc = 3\n", (2, 1, 0)),
        ("z = 0\nc = 3\n", (0, 1, 1)),
        ("a = 1\nif a:\n    b = 2\nc = 3\n", (1, 1, 0)),
    ],
)
def test_a_replaced_block_is_changed_as_far_as_it_goes(after, numbers):
    assert count_changes("a = 1\nb = 2\nc = 3\n", after) == numbers


def test_what_is_stored_is_what_the_examples_hold():
    assert measure_examples() == stored_changes(), AGAIN
    assert changes_csv(stored_changes()) == STORED.read_text(), AGAIN


def test_the_page_shows_what_is_stored():
    page = (DOCS / "productivity.md").read_text()
    assert in_page(page, stored_changes()) == page, AGAIN
    sizes = {
        name: len(code_lines((DOCS / "examples" / name / "single.py").read_text()))
        for name in ("torch", "tensorflow")
    }
    assert f"{sizes['torch']} lines of code in torch and {sizes['tensorflow']} in TensorFlow" in page


def test_every_backend_for_scripts_has_one_in_each_of_its_frameworks():
    others = ("none", "mpi_ps")  # mpi_ps trains workloads and users' models, and has no interface for scripts
    pairs = {
        (framework, name)
        for name in NAMES
        for framework in TABLE[name].frameworks
        if name not in others and framework != "jax"  # in which workloads train, and no script does
    }
    assert pairs - {(one.framework, one.backend) for one in stored_changes()} == set()


def test_a_report_shows_the_backends_of_its_study(make_record):
    records = [
        make_record(framework=framework, backend=backend, num_ranks=2)
        for framework, backend in (("torch", "none"), ("torch", "gloo"), ("tensorflow", "mpi"))
    ]
    table = measure(records)
    shown = study_json(collect(load_all(), table))["productivity"]
    assert [(row["framework"], row["backend"]) for row in shown] == [("tensorflow", "mpi"), ("torch", "gloo")]
    assert set(shown[0]) == {"framework", "backend", "added", "changed", "removed", "script"}
    without = measure([make_record(backend="none")])
    assert study_json(collect(load_all(), without))["productivity"] == []
