"""Jobs are handed to a scheduler once, whatever it prints: programs in its place answer."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.jobs import submission
from dlscale.benchmarks.jobs.jobs import JobFiles

ROOT = Path(__file__).parents[3]


@pytest.fixture
def scheduler(tmp_path, monkeypatch):
    """Put a program of that name first on the path."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    (tmp_path / "bin").mkdir()

    def put(name, lines):
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/bash\n{lines}\n")
        program.chmod(0o755)

    return put


@pytest.fixture
def submit(tmp_path, monkeypatch):
    """Hand job-000 to Slurm."""
    monkeypatch.setattr(submission, "job_script", lambda *_, **__: "#!/bin/bash\n")
    system = SimpleNamespace(scheduler="slurm")
    campaign = SimpleNamespace(system=system, store=SimpleNamespace(folder=tmp_path))
    job = SimpleNamespace(name="job-000", model_dump_json=lambda: "{}")
    return lambda: submission.submit(campaign, [job], account=None)


def states(folder):
    return submission.job_states(SimpleNamespace(scheduler="slurm"), [JobFiles(folder, "job-000")])


def test_text_that_is_not_utf8_hides_no_number(submit, scheduler, tmp_path):
    scheduler("sbatch", r"printf 'sbatch: Willkommen, Gr\374\337e\n'; echo 4711")
    (files,) = submit()
    assert files.id == "4711"
    scheduler("squeue", "echo 4711 PENDING")
    assert states(tmp_path) == {"job-000": "pending"}
    scheduler("squeue", r"printf 'Verbindung verweigert f\374r squeue\n' >&2; exit 1")
    with pytest.raises(UsageError, match="squeue failed: Verbindung verweigert f\ufffdr squeue; try again"):
        states(tmp_path)


def test_a_job_whose_number_is_unknown_is_not_submitted_again(submit, scheduler, tmp_path):
    scheduler("sbatch", "echo Willkommen")
    with pytest.raises(UsageError, match=r"job-000 may have been submitted.*write its number into .*\.id"):
        submit()
    with pytest.raises(UsageError, match="has no number of a job; if the scheduler lists job-000"):
        states(tmp_path)


def test_a_scheduler_without_an_answer_may_have_taken_the_job(submit, scheduler, tmp_path, monkeypatch):
    monkeypatch.setattr(submission, "COMMAND_SECONDS", 0.1)
    scheduler("sbatch", "echo 4711; exec sleep 5")
    with pytest.raises(UsageError, match=r"sbatch did not answer"):
        submit()
    with pytest.raises(UsageError, match="has no number of a job"):
        states(tmp_path)


@pytest.mark.parametrize("there", [True, False])
def test_a_refused_job_is_submitted_by_the_next_command(submit, scheduler, tmp_path, monkeypatch, there):
    if there:
        scheduler("sbatch", "echo no account >&2; exit 1")
    else:
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UsageError, match=r"sbatch refused.*no account|no sbatch here"):
        submit()
    assert JobFiles(tmp_path, "job-000").id is None


def test_no_text_of_another_program_ends_dlscale():
    """Every program's output is decoded with replacement."""
    sources = [
        path
        for room in ("base", "benchmarks", "models", "collectives")
        for path in (ROOT / room).rglob("*.py")
    ]
    calls = [
        (path, {word.arg for word in node.keywords})
        for path in sources
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]
    found = [
        (path, words) for path, words in calls if "text" in words and words & {"capture_output", "stdout"}
    ]
    assert found
    assert not [path for path, words in found if "errors" not in words]
