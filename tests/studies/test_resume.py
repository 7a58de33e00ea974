"""A study that is killed again and again ends with the same complete records."""

import json
import random
import subprocess
import time
from dataclasses import replace

import pytest

from tests.studies.conftest import DLSCALE

pytestmark = [pytest.mark.requires("mpiexec", "ring"), pytest.mark.timeout(420)]

SHORT = ("--backends", "none,ring", "--ranks", "1,2", "--data", "synthetic")


def planned(bench):
    (path,) = bench.folder.glob("results/*/*/study.json")
    return path


def killed_and_resumed(bench, command, *, kills, longest, training=False):
    """Kill the study so many times and resume it to its end; returns the seed of the moments.

    They are in the first `longest` seconds after its start or, if `training`, after its first launch trains.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    moments = random.Random(seed)  # noqa: S311 - moments, not secrets
    for kill in range(kills):
        words = command if kill == 0 else [DLSCALE, "resume", "--results", str(bench.folder / "results")]
        begin = time.time()
        with (bench.folder / "said.txt").open("a") as said:
            process = subprocess.Popen(words, stdout=said, stderr=subprocess.STDOUT)
            if kill == 0:  # there is nothing to resume before there is a folder
                while not list(bench.folder.glob("results/*/*/study.json")) and process.poll() is None:
                    time.sleep(0.05)
            while training and not trains(bench, begin) and process.poll() is None:
                time.sleep(0.02)
            time.sleep(moments.uniform(0.0, longest))
            process.kill()
            process.wait()
    done = bench.ask("resume")
    assert done.returncode == 0, (seed, bench.said()[-3000:], done.stdout, done.stderr)
    return seed


def trains(bench, since):
    """Whether a launch that was started after then has trained; of a killed one, files remain."""
    specs = bench.folder.glob("results/*/*/spool/*/launch.json")
    return any(path.stat().st_mtime >= since for path in specs) and bench.running_ranks()


@pytest.mark.nightly
def test_killed_at_any_moments_and_resumed_it_has_every_record_once(bench):
    """kill -9 of the orchestrator, at any moment: before, in and between launches, while records are written."""
    seed = killed_and_resumed(bench, bench.command(*SHORT, "--launches", "2"), kills=6, longest=6.0)
    cases = [case for cases in json.loads(planned(bench).read_text())["launches"] for case in cases]
    records = bench.records()
    good = sorted((r.case.cell.backend, r.case.cell.num_ranks, r.case.block) for r in records if r.good)
    assert good == sorted((c["cell"]["backend"], c["cell"]["num_ranks"], c["block"]) for c in cases), seed
    assert len(cases) == 3 * 2
    assert {r.failure.kind for r in records if not r.good} <= {"interrupted"}, seed
    assert not list(planned(bench).parent.glob("spool/*")), "nothing is left over"
    assert not list(planned(bench).parent.rglob(".*.tmp*")), "no half-written file"


TO_TARGET = (
    *("--backends", "ring", "--ranks", "2", "--set", "base=smallest", "--launches", "2"),
    *("--set", "rules.checkpoint_every=5", "--target", "auc=0.8", "--set", "target.evaluate_samples=160"),
    *("--set", "target.learning_rate=3e-3", "--set", "target.max_seconds=10min"),
)


@pytest.mark.nightly
def test_trainings_to_a_target_killed_at_five_moments_have_the_records_of_those_that_were_not(bench):
    """Blocks, seeds, steps, losses and metrics: all but the times."""
    (undisturbed := replace(bench, folder=bench.folder / "undisturbed")).folder.mkdir()
    whole = undisturbed.run(*TO_TARGET, study="time-to-solution")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    seed = killed_and_resumed(
        bench, bench.command(*TO_TARGET, study="time-to-solution"), kills=5, longest=1.5, training=True
    )
    expected, found = trainings(undisturbed), trainings(bench)
    assert len(expected) == 2
    assert found == expected, seed
    for record in bench.records():
        assert {one.step % 5 for one in record.checkpoints} <= {0}
    assert any(record.good and record.resumed for record in bench.records()), seed
    assert not list(planned(bench).parent.glob("checkpoints/*/*")), "what has ended is not gone on with"


def trainings(bench):
    """Everything about the good trainings that a clock has no part in."""
    return {
        (record.case.id, record.order_seed): (
            record.solution.end,
            [(e.step, e.samples, e.loss, e.metrics) for e in record.solution.evaluations],
        )
        for record in bench.records()
        if record.good
    }


@pytest.mark.slow
def test_resume_tries_failures_again(bench):
    # No Python starts without its library.
    words = ("--backends", "none", "--ranks", "1", "--data", "synthetic", "--set", "PYTHONHOME=/nowhere")
    assert bench.run(*words).returncode == 2
    assert bench.ask("resume").returncode == 2
    assert [record.attempt for record in bench.records()] == [1, 2]
