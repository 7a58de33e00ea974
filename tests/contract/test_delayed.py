"""Pipelined training: the gates of the delayed mode pass, and what is late in another way does not pass them."""

import pytest

from dlscale.collectives import capabilities, with_capability
from dlscale.collectives.registry import connect
from dlscale.models.frameworks import FRAMEWORKS

from .conftest import make_factory

pytestmark = pytest.mark.on_ranks(2)

PAIRS = [
    (name, framework)
    for name in with_capability("delayed")
    for framework in FRAMEWORKS
    if framework in capabilities(name).frameworks
]


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request):
    return request.param


@pytest.mark.parametrize(
    ("workload", "options"),
    [
        ("hep_cnn", {"pipelined_until_step": 1, "teams": 2}),
        ("cosmogan", {}),  # two objectives and batch norm; with a thread over the ring, without one over MPI
    ],
)
def test_the_gates_pass(pair, world, verdicts, workload, options):
    if (*pair, workload) == ("mpi", "tensorflow", "cosmogan"):
        pytest.skip("shown over the ring: building it takes longer than all else here")
    if pair[0] == "ring":
        options = {"teams": 1, **options}
    backend = connect(pair[0], control=world, options={"pipelined": True, **options})
    delay = backend.delay
    found = verdicts(backend, make_factory(pair[1], workload))
    backend.close()
    assert delay == 1
    assert found == {"broadcast": True, "gradient": True}


class Claims:
    """A backend that is taken for one that applies gradients `delay` steps late."""

    def __init__(self, backend, delay, harm=lambda trainer: trainer):
        self._backend, self.delay, self._harm = backend, delay, harm

    def __getattr__(self, name):
        return getattr(self._backend, name)

    def distribute(self, *arguments, **options):
        return self._harm(self._backend.distribute(*arguments, **options))


class SkipsTheFirst:
    """A trainer that loses its first gradients and is synchronous from then on."""

    def __init__(self, trainer):
        self._trainer, self._num_steps = trainer, 0

    def __getattr__(self, name):
        return getattr(self._trainer, name)

    def step(self):
        self._num_steps += 1
        if self._num_steps > 1:
            self._trainer.step()


@pytest.mark.parametrize(
    ("pipelined", "claimed", "harm", "failing"),
    [
        pytest.param(False, 1, lambda trainer: trainer, {"gradient"}, id="synchronous"),
        pytest.param(True, 0, lambda trainer: trainer, {"gradient"}, id="late though not asked to be"),
        pytest.param(False, 1, SkipsTheFirst, {"gradient"}, id="skips the first"),
    ],
)
def test_another_delay_than_claimed_does_not_pass(world, verdicts, pipelined, claimed, harm, failing):
    backend = connect("ring", control=world, options={"pipelined": pipelined})
    found = verdicts(Claims(backend, claimed, harm), make_factory("torch"))
    backend.close()
    assert {name for name, passed in found.items() if not passed} == failing
