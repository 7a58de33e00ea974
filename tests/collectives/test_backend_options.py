"""Options that each backend has, and what they take."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives import NAMES
from dlscale.collectives.registry import check_options


@pytest.mark.parametrize("backend", NAMES)
def test_every_backend_knows_its_options(backend):
    check_options(backend, {})
    with pytest.raises(UsageError, match=f"backend {backend} has no option 'nonsense'"):
        check_options(backend, {"nonsense": 1})


def test_a_whole_number_will_do_where_a_fraction_is_expected():
    check_options("horovod", {"cycle_time_ms": 1})
    with pytest.raises(UsageError, match="give true or false"):
        check_options("grpc_ps", {"asynchronous": 1})


def test_each_dataclass_of_a_backend_takes_its_own():
    check_options("ring", {"pipelined": True, "huge_pages": False})
    with pytest.raises(UsageError, match="pipelined_until_step"):
        check_options("ring", {"pipelined_until_step": 3})
