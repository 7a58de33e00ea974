"""A study that would take its machine down is refused before anything starts; no rank is ever started here."""

import psutil
import pytest

from dlscale.benchmarks.launch import campaign, supervisor
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import load_system

FLAGS = ("--backends", "none", "--preset", "tiny", "--data", "synthetic")


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Two cores and 4 GiB, whatever runs the tests; no launch may begin."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    free = psutil.virtual_memory()._replace(available=4 << 30)
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)
    monkeypatch.setattr(supervisor, "supervise", pytest.fail)


@pytest.mark.parametrize("words", [["run", "--dry-run"], ["run"]])
def test_more_than_four_ranks_per_core_are_refused(mistake, tmp_path, words):
    said = mistake(*words, "weak-scaling", "--ranks", 1000, *FLAGS, "--results", tmp_path / "new")
    assert said.startswith("dlscale: 1000 ranks in torch are too many for 2 cores and 4 GiB of free memory; ")
    assert said.endswith("ask for at most 8 --ranks")
    assert not (tmp_path / "new").exists()


def test_more_ranks_than_memory_holds_are_refused(mistake, tmp_path):
    said = mistake(
        "run",
        "--dry-run",
        "weak-scaling",
        "--ranks",
        8,
        "--frameworks",
        "tensorflow",
        *FLAGS,
        "--results",
        tmp_path,
    )
    assert said.endswith(
        "8 ranks in tensorflow are too many for 2 cores and 4 GiB of free memory; ask for at most 5 --ranks"
    )


def test_a_study_that_was_opened_before_is_not_resumed(mistake, tmp_path, monkeypatch):
    study = load_study("weak-scaling", backends=["none"], ranks=[1000], preset="tiny", launches=1)
    with monkeypatch.context() as changed:
        changed.setattr(campaign, "RANKS_PER_CORE", 1000)
        changed.setattr(campaign, "RANK_BYTES", {"torch": 1})
        made = campaign.prepare_campaign(
            study, load_system("local"), environment_name=None, data="synthetic", results=tmp_path
        )
    with campaign.open_campaign(made, {"data": "synthetic"}):
        pass
    assert "1000 ranks in torch are too many for 2 cores" in mistake("resume", "--results", tmp_path)
