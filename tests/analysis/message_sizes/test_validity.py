"""When a measurement of an MPI agrees with IMB-MPI1's."""

import pytest

from dlscale.analysis.message_sizes.validity import check_validity

from .conftest import KIB, MIB


@pytest.fixture
def judged(make_campaign, make_launch):
    """The check of MPICH's default setting, from ours over IMB's time in each block, by size."""

    def check(ratios, backend="mpich", microseconds=1000):
        launches = [make_launch({"mpi": {4 * KIB: 1.0}}, backend=backend)]
        for block in range(3 if backend == "mpich" else 0):
            # Our samples alternate which rank is slow, so each rank's mean is 2/3 of the slower one's time.
            ours = {size: 1.5 * microseconds * by_block[block] for size, by_block in ratios.items()}
            theirs = dict.fromkeys(ratios, microseconds)
            same = {"block": block, "purpose": "validity", "noise": 1 + block}
            launches += [make_launch({"mpi-copy": ours}, **same), make_launch(references=theirs, **same)]
        (found,) = check_validity(make_campaign(), launches)
        return found

    return check


def test_equal_means_are_valid_whatever_the_machine_does_between_blocks(judged):
    check = judged({4 * KIB: (1.0, 1.01, 0.99), MIB: (1.02, 1.0, 1.01)})
    assert check.valid
    assert check.found.startswith("1.00 ")
    assert "of IMB-MPI1's time over 2 sizes" in check.found


@pytest.mark.parametrize("ratio", [1.07, 0.93])
def test_seven_percent_everywhere_are_invalid(judged, ratio):
    check = judged({4 * KIB: (ratio, ratio, ratio), MIB: (ratio, 1.01 * ratio, 0.99 * ratio)})
    assert not check.valid
    assert "noisy" not in check.found


def test_what_noise_hides_is_not_valid(judged):
    check = judged({4 * KIB: (0.7, 1.3, 1.1), MIB: (1.3, 0.8, 0.96)})
    assert not check.valid
    assert check.found.endswith("; too noisy to tell")


def test_calls_that_are_too_short_for_python_are_not_compared(judged):
    check = judged({4 * KIB: (2.0, 2.0, 2.0)}, microseconds=30)
    assert (check.compared, check.valid) == (False, False)


def test_an_mpi_that_was_not_compared_says_so(judged):
    check = judged({}, backend="openmpi")
    assert (check.compared, check.valid) == (False, False)
    assert check.found == "not compared with IMB-MPI1: nothing to compare it with"
