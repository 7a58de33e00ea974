"""`dlscale report` where a finding raises an error: the others are there, and the exit status tells."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlscale.analysis.findings import load_all
from dlscale.benchmarks.cli import FAILED_CASES, report, study_report

GOLDEN = Path(__file__).parents[2] / "golden" / "records"
SENTENCE = "could not be computed: ArithmeticError: odd"


def _raises(_):
    raise ArithmeticError("odd")


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    (golden,) = GOLDEN.glob("weak-scaling-*")
    return Path(shutil.copytree(golden, tmp_path / "results" / "local" / golden.name))


@pytest.fixture
def broken(request):
    """A finding that always raises, for all that ask for it, too."""
    (finding,) = [one for one in load_all() if one.name == request.param]
    compute = finding.compute
    object.__setattr__(finding, "compute", _raises)
    yield request.param
    object.__setattr__(finding, "compute", compute)


# What verdict, strips, warnings and exit status rest on, and what nothing rests on.
@pytest.mark.parametrize("broken", ["scaling", "waterfall", "energy"], indirect=True)
@pytest.mark.parametrize("options", [(), ("--full",), ("--json",)])
def test_a_finding_that_always_raises_takes_nothing_else_down(study, broken, options):
    done = CliRunner().invoke(report.report, [str(study), *options], standalone_mode=False)
    assert done.exception is None, "no traceback"
    assert done.return_value == FAILED_CASES
    assert SENTENCE in " ".join(done.output.split())
    if "--json" in options:
        data = json.loads(done.stdout)
        assert SENTENCE in data[broken][0]["text"]
        assert data["start_up"], "nothing that it rests on failed"
    else:
        assert SENTENCE in (study / "report.html").read_text()


@pytest.mark.parametrize(("damage", "name"), [("", "local"), ('"system"', None)])
def test_a_study_brings_its_system_along(study, damage, name):
    """Whose file may not be here any more; one that cannot be read costs what rests on it, and nothing else."""
    path = study / "study.json"
    path.write_text(path.read_text().replace(damage, '"sytsem"', 1) if damage else path.read_text())
    system = study_report.load(study).system
    assert (system and system.name) == name
