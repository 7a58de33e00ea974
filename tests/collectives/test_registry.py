"""Every backend by its name: what the doctor asks of it, and its options."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives import NAMES, capabilities
from dlscale.collectives.registry import check_options, unavailable_because


@pytest.mark.parametrize("name", NAMES)
def test_every_backend_has_an_answer_and_knows_its_options(name):
    for framework in capabilities(name).frameworks:
        reason = unavailable_because(name, framework)
        assert reason is None or "\n" not in reason
    check_options(name, {})


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        *((name, {"nonsense": 1}, f"backend {name} has no option 'nonsense'") for name in NAMES),
        ("grpc_ps", {"asynchronous": 1}, "give true or false"),
        ("ring", {"pipelined_until_step": 3}, "pipelined_until_step"),
        ("smoke", {}, "no backend 'smoke'"),
    ],
)
def test_an_option_that_makes_no_sense_is_one_line(name, options, said):
    with pytest.raises(UsageError, match=said):
        check_options(name, options)


def test_options_of_several_dataclasses_and_a_whole_number_for_a_fraction_are_taken():
    check_options("ring", {"pipelined": True, "huge_pages": False})
    check_options("horovod", {"cycle_time_ms": 1})
    assert unavailable_because("gloo", "tensorflow") == "gloo does not train in tensorflow"
