"""Options of backends as people type them."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.owned_options import parse_backend_options
from dlscale.collectives import NAMES
from dlscale.collectives.registry import check_options


def test_values_are_numbers_truths_and_texts():
    assert parse_backend_options(
        "horovod.cycle_time_ms=0.5, grpc_ps.asynchronous=true grpc_ps.placement=size"
    ) == {
        "horovod": {"cycle_time_ms": 0.5},
        "grpc_ps": {"asynchronous": True, "placement": "size"},
    }


@pytest.mark.parametrize(
    "text", ["horovod", "horovod.cycle_time_ms", "cycle_time_ms=1", "horovod.=1", ".a=1", "a.b="]
)
def test_a_malformed_one_is_refused(text):
    with pytest.raises(ValueError, match="is not a backend option"):
        parse_backend_options(text)


@pytest.mark.parametrize("backend", NAMES)
def test_every_backend_knows_its_options(backend):
    check_options(backend, {})
    with pytest.raises(UsageError, match=f"backend {backend} has no option 'nonsense'"):
        check_options(backend, {"nonsense": 1})


def test_a_whole_number_will_do_where_a_fraction_is_expected():
    check_options("horovod", {"cycle_time_ms": 1})
    with pytest.raises(UsageError, match="give a bool"):
        check_options("grpc_ps", {"asynchronous": 1})


def test_each_dataclass_of_a_backend_takes_its_own():
    check_options("ring", {"pipelined": True, "wire": "bfloat16"})
    with pytest.raises(UsageError, match="pipelined_until_step"):
        check_options("ring", {"pipelined_until_step": 3})
