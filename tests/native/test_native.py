"""The ring's native parts without MPI: ranks are threads of one program."""

import platform
from pathlib import Path

import pytest

pytestmark = [pytest.mark.requires("compiler"), pytest.mark.timeout(600), pytest.mark.slow]

CPU_SAYS = {"avx2": "avx2", "avx512": "avx512bw"}


def kernels_here():
    if platform.machine() not in ("x86_64", "AMD64"):
        return ["portable"]
    flags = Path("/proc/cpuinfo").read_text().split()
    return ["portable", *(name for name, flag in CPU_SAYS.items() if flag in flags)]


@pytest.fixture(scope="module")
def plain(variant):
    return variant("plain")


def test_all_instruction_sets_agree_with_the_plain_reduction(plain):
    plain.check("kernels_test")


@pytest.mark.parametrize("kernels", kernels_here())
def test_sequences_of_mixed_operations(plain, kernels):
    plain.check("sequences_test", 12, 300, kernels)


def test_the_exchange_between_nodes(plain):
    plain.check("exchange_test", 6)


def test_which_variant_is_chosen(plain):
    plain.check("tuner_test")


def test_gradients_of_tensorflow_s_operations(plain):
    plain.check("gradients_test")


def test_failures_are_noticed(plain):
    plain.check("failures_test")
