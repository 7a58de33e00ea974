"""The check of ranks that share samples, as threads of one process."""

from itertools import count

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank import split_check
from dlscale.benchmarks.rank.split import gate_height
from dlscale.benchmarks.rank.split_check import check_frameworks, check_split, preset_to_split
from dlscale.collectives.neighbours.gathering import GatheringNeighbours, in_threads
from dlscale.models import load_workload


@pytest.mark.requires("torch")
def test_it_passes_and_fails_without_halos(monkeypatch):
    def checks():
        found = check_split(load_workload("hep_cnn"), "torch", preset="tiny", precision="fp32", split=3)
        return {gate.name: gate.passed for gate in found.checks}

    assert checks() == {"split": True, "split_precision": True}
    monkeypatch.setattr(GatheringNeighbours, "exchange", nothing_comes)
    assert checks() == {"split": False, "split_precision": False}


@pytest.mark.requires("torch")
def test_ranks_of_two_frameworks_are_compared_with_each_other(monkeypatch):
    """torch stands for both; without halos in the second round of either precision it differs."""

    def checks():
        found = check_frameworks(
            load_workload("hep_cnn"), ["torch", "torch"], preset="tiny", precision="fp32", split=2
        )
        return {gate.name: gate.passed for gate in found.checks}

    assert checks() == {"frameworks": True, "frameworks_precision": True}
    numbers, rounds = split_check._numbers, count(1)

    def faulty(*of):
        with monkeypatch.context() as patched:
            if next(rounds) % 2 == 0:
                patched.setattr(GatheringNeighbours, "exchange", nothing_comes)
            return numbers(*of)

    monkeypatch.setattr(split_check, "_numbers", faulty)
    assert checks() == {"frameworks": False, "frameworks_precision": False}


def nothing_comes(_, __, ___, *into):
    for rows in into:
        if rows is not None:
            rows.fill(0)


def test_too_few_blocks_and_whole_samples_are_not_checked():
    """ResNet-50 takes as many rows as there have to be; CosmoGAN has the rows that it has."""
    rows = {name: preset_to_split(load_workload(name), "tiny", 3) for name in ("resnet50", "cosmogan", "gpt")}
    assert rows["resnet50"].input_shape[1] == 3 * 32
    assert rows["cosmogan"] is rows["gpt"] is None


@pytest.mark.parametrize(
    ("height", "block", "split", "expected"), [(96, 32, 2, 96), (3584, 16, 16, 256), (3584, 16, 3, 80)]
)
def test_tall_samples_are_looked_at_in_few_rows_as_uneven_as_they_are(height, block, split, expected):
    assert gate_height(height, block, split) == expected


def test_what_a_thread_raises_is_raised():
    def work(neighbours):
        if neighbours.index == 1:
            raise UsageError("rank 1 has had enough")
        return neighbours.allgather(1)

    with pytest.raises(UsageError, match="had enough"):
        in_threads(3, work)
