"""Launches that other programs disturbed are run again at the end of their block, up to a limit."""

from types import SimpleNamespace

import pytest

from dlscale.benchmarks.cli import run_here
from dlscale.benchmarks.study.study import load_study


def launch(name, block):
    cell = SimpleNamespace(workload="hep_cnn", framework="torch", backend=name, control="train", num_ranks=2)
    cell.method = name
    return SimpleNamespace(cases=[SimpleNamespace(block=block)], cell=cell)


@pytest.fixture
def order(monkeypatch):
    """The launches that are made, by backend and block, if those named are disturbed."""

    def run_all(launches, disturbed, **study):
        made = []

        def run_launch(_campaign, launch):
            made.append(f"{launch.cell.backend}{launch.cases[0].block}")
            hit = made[-1] in disturbed
            return [SimpleNamespace(good=True, disturbed=hit, failure=None)]

        monkeypatch.setattr(run_here, "run_launch", run_launch)
        plan = SimpleNamespace(study=load_study("weak-scaling", **study), num_launches=2, seconds=len)
        run_here._run_launches(SimpleNamespace(plan=plan), launches)
        return made

    return run_all


LAUNCHES = [launch(name, block) for block in (0, 1) for name in "abcd"]


@pytest.mark.parametrize(
    ("disturbed", "made"),
    [
        ("", "a0 b0 c0 d0 a1 b1 c1 d1"),
        ("b0 d1", "a0 b0 c0 d0 b0 a1 b1 c1 d1 d1"),  # again within their block
        ("a0 b0 c0 d0 a1 b1 c1 d1", "a0 b0 c0 d0 a0 b0 a1 b1 c1 d1"),  # at most a share of the study
    ],
)
def test_disturbed_ones_run_again_within_their_block(order, disturbed, made):
    assert order(LAUNCHES, disturbed.split()) == made.split()


@pytest.mark.parametrize("study", [{"repeats": 0}, {"rules": {"checkpoint_every": 100}}])
def test_a_study_may_refuse_repeats_and_saved_trainings_do(order, study):
    assert len(order(LAUNCHES, {"a0"}, **study)) == 8
