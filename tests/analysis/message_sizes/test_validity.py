"""When a measurement of an MPI counts as the same as IMB-MPI1's."""

import pytest

from dlscale.analysis.message_sizes.goals import ValidityCheck, check_validity

from .conftest import KIB, MIB, MakeCampaign, MakeLaunch


@pytest.fixture
def judged(make_campaign: MakeCampaign, make_launch: MakeLaunch):
    """The check of MPICH's default setting, from ours over IMB's time in each block, by size."""

    def found(ratios: dict[int, tuple[float, ...]], backend: str = "mpich") -> ValidityCheck:
        launches = [make_launch({"mpi": {4 * KIB: 1.0}}, backend=backend)]
        for block in range(3):
            # Our samples alternate which rank is slow, so each rank's mean is 2/3 of the slower one's time.
            ours = {size: 1.5 * 100 * by_block[block] for size, by_block in ratios.items()}
            launches.append(
                make_launch(
                    {"mpi-copy": ours}, backend=backend, block=block, purpose="validity", noise=1 + block
                )
            )
            if backend == "mpich":
                theirs = dict.fromkeys(ratios, 100.0)
                launches.append(
                    make_launch(references=theirs, block=block, purpose="validity", noise=1 + block)
                )
        (one,) = check_validity(make_campaign(), launches)
        return one

    return found


def test_equal_means_are_valid_whatever_the_machine_does_between_blocks(judged):
    one = judged({4 * KIB: (1.0, 1.01, 0.99), MIB: (1.02, 1.0, 1.01)})
    assert one.valid
    assert one.ratios[MIB].center == pytest.approx(1.01, abs=1e-3)


def test_a_size_that_surely_differs_makes_it_void(judged):
    one = judged({4 * KIB: (1.2, 1.21, 1.19), MIB: (0.83, 0.82, 0.84)})
    assert not one.valid
    assert "not within 5 % at 4 KiB, 1 MiB" in one.found


def test_noise_at_one_size_is_told_and_does_not_decide(judged):
    one = judged({4 * KIB: (1.0, 1.12, 1.07), MIB: (1.0, 0.98, 0.99), 4 * MIB: (1.0, 1.01, 0.99)})
    assert one.valid
    assert "too noisy to tell at 4 KiB" in one.found


def test_what_noise_hides_is_not_valid(judged):
    one = judged({4 * KIB: (0.7, 1.3, 1.1), MIB: (1.3, 0.8, 0.96)})
    assert one.ratios[MIB].center == pytest.approx(1.0, abs=0.01)
    assert not one.valid
    assert "; too noisy to tell" in one.found


def test_ten_percent_everywhere_are_void(judged):
    one = judged({4 * KIB: (1.1, 1.12, 1.08), MIB: (1.1, 1.09, 1.11)})
    assert not one.valid


def test_what_was_not_compared_is_void(judged):
    one = judged({4 * KIB: (1.0, 1.0, 1.0)}, backend="openmpi")
    assert not one.valid
    assert one.found == "not compared with IMB-MPI1: nothing to compare it with"
