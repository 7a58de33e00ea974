"""Trainings longer than their windows: saved at intervals, killed, and gone on with."""

import time

import pytest

from dlscale.models import load_workload

pytestmark = [pytest.mark.slow, pytest.mark.requires("mpiexec", "ring"), pytest.mark.timeout(240)]

LONG = ("--backends", "ring", "--ranks", "2", "--data", "synthetic", "--set", "rules.checkpoint_every=40")


def saved(bench):
    return sorted(bench.folder.glob("results/*/*/checkpoints/*/*.safetensors"))


def num_steps(record):
    return record.windows.num_steps.sum()


def check_checkpoints(bench, record, *, since):
    """Saved at intervals from step `since` on, whole, and removed at the end."""
    steps = [checkpoint.step for checkpoint in record.checkpoints]
    assert len(steps) >= 4
    assert all(40 <= after - before <= 80 for before, after in zip([since, *steps], steps, strict=False))
    arrays = 3 * 4 * load_workload("hep_cnn").preset("tiny").num_parameters  # weights, and Adam's two moments
    assert [c.num_bytes for c in record.checkpoints] == [pytest.approx(arrays, rel=0.1)] * len(steps)
    assert saved(bench) == [], "what has ended is not gone on with"


def killed_after_a_checkpoint(bench, *options):
    """A training that is killed with all its ranks once its state has been saved; gives the step."""
    with bench.start(*LONG, *options) as study:
        deadline = time.monotonic() + 120
        while not saved(bench) and time.monotonic() < deadline:
            assert study.poll() is None, bench.said()
            time.sleep(0.02)
        study.kill()
        study.wait()
    (path,) = saved(bench)
    return path


@pytest.mark.nightly
@pytest.mark.requires("tensorflow")
def test_a_training_has_all_its_steps_and_says_what_saving_it_cost(bench):
    done = bench.run(*LONG, "--frameworks", "tensorflow", "--set", "rules.min_steps=300")
    assert done.returncode in (0, 4), done.stdout + done.stderr
    (record,) = bench.records()
    assert record.good
    assert record.resumed is None
    assert num_steps(record) >= 300
    check_checkpoints(bench, record, since=0)


def test_a_killed_training_goes_on_at_its_last_checkpoint(bench):
    path = killed_after_a_checkpoint(bench, "--set", "rules.min_steps=1000")
    step = int(path.stem.removeprefix("step-"))
    done = bench.ask("resume")
    assert done.returncode in (0, 4), done.stdout + done.stderr
    first, second = bench.records()
    assert first.failure.kind == "interrupted"
    assert first.checkpoints[0].step >= 40
    assert second.good
    assert second.resumed.step >= step
    assert first.checkpoints[-1].step == second.resumed.step
    check_checkpoints(bench, second, since=second.resumed.step)


@pytest.mark.nightly
def test_a_damaged_checkpoint_is_one_line_and_not_passed_over(bench):
    path = killed_after_a_checkpoint(bench, "--set", "rules.min_steps=4000")
    path = saved(bench)[0]
    path.write_bytes(path.read_bytes()[:1000])
    done = bench.ask("resume")
    assert done.returncode == 2, done.stdout + done.stderr
    last = bench.records()[-1]
    assert last.failure.kind == "error"
    assert str(path.name) in last.failure.message
    assert "delete it, and the training begins anew" in last.failure.message
