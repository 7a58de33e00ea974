"""What the doctor asks of each backend and framework."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives import NAMES, capabilities
from dlscale.collectives.registry import unavailable_because


def test_every_pair_has_an_answer_in_one_line():
    for name in NAMES:
        for framework in capabilities(name).frameworks:
            reason = unavailable_because(name, framework)
            assert reason is None or "\n" not in reason


def test_a_framework_that_it_does_not_serve_is_a_problem():
    assert unavailable_because("gloo", "tensorflow") == "gloo does not train in tensorflow"
    with pytest.raises(UsageError, match="no backend 'smoke'"):
        unavailable_because("smoke", "torch")
