"""Whether ranks notice that they hold different arrays, and say which. Every rank must say the same."""

import numpy as np
import pytest

import dlscale.collectives
from dlscale.collectives.buffers import BuffersDifferError, check_buffers_match

from .conftest import make_factory

pytestmark = pytest.mark.on_ranks(2, 3)


@pytest.fixture(scope="module")
def collective(any_collective, world):
    backend = dlscale.collectives.connect(any_collective, control=world)
    collective = backend.collective()
    yield collective
    collective.close()
    backend.close()


def arrays():
    generator = np.random.default_rng(3)
    floats = generator.standard_normal((17, 5)).astype(np.float32)
    return [
        floats,
        np.zeros(0),
        np.array(0.0),
        floats.T,
        generator.integers(0, 9, 1001).astype(np.uint8),
        np.full(3, np.nan),
    ]


NAMES = ("kernel", "nothing", "scale", "transposed", "bytes", "not numbers")


def complaint(collective, world, mine, **options):
    """What the check says on this rank, after all ranks said the same."""
    try:
        check_buffers_match(collective, mine, **options)
        said = None
    except BuffersDifferError as error:
        said = str(error)
    everyone = world.allgather(said)
    assert len(set(everyone)) == 1, everyone
    return said


def test_equal_arrays_match(collective, world):
    assert complaint(collective, world, arrays()) is None
    assert complaint(collective, world, arrays(), names=NAMES) is None
    assert complaint(collective, world, []) is None


def one_bit(mine):
    mine[4].view(np.uint8)[1000] ^= 1


def two_values_swapped(mine):
    mine[0][[0, 1]] = mine[0][[1, 0]]


def sign_of_zero(mine):
    mine[2] = np.array(-0.0)


def other_shape(mine):
    mine[0] = mine[0].reshape(5, 17)


def other_dtype(mine):
    mine[4] = mine[4].view(np.int8)


@pytest.mark.parametrize(
    ("harm", "name"),
    [
        (one_bit, "bytes"),
        (two_values_swapped, "kernel"),
        (sign_of_zero, "scale"),
        (other_shape, "kernel"),
        (other_dtype, "bytes"),
    ],
)
def test_the_first_array_that_differs_is_named_and_so_are_the_ranks(collective, world, harm, name):
    last = world.Get_size() - 1
    mine = arrays()
    if world.Get_rank() == last:
        harm(mine)
    named = complaint(collective, world, mine, names=NAMES)
    numbered = complaint(collective, world, mine)
    if last == 0:
        assert named is numbered is None  # one rank agrees with itself
        return
    assert named.startswith(f"{name} is not on all ranks what it is on rank 0: it differs on rank {last};")
    assert numbered.startswith(f"array {NAMES.index(name)} is not")


def test_unequal_numbers_of_arrays_are_noticed(collective, world):
    mine = arrays()[: 2 + (world.Get_rank() == 0)]
    said = complaint(collective, world, mine)
    if world.Get_size() > 1:
        assert said.startswith("ranks hold 3, 2")


@pytest.mark.parametrize("every", [1, 3])
def test_a_trainer_that_checks_finds_a_rank_that_went_its_own_way(world, shard, every):
    """After the steps that are to be checked, and not before."""
    factory, replicas = make_factory("torch"), []

    def remembered(**arguments):
        replicas.append(factory(**arguments))
        return replicas[-1]

    backend = dlscale.collectives.connect("ring", control=world, options={"check_every": every})
    trainer = backend.distribute(remembered, shard=shard, seed=1)
    for _ in range(every):
        trainer.step()
    weights = replicas[0].weights()
    weights[2][0] += world.Get_rank()
    replicas[0].load(weights)
    said = []
    for _ in range(every):
        try:
            trainer.step()
            said.append(None)
        except BuffersDifferError as error:
            said.append(str(error))
    everyone = world.allgather(said)
    assert trainer.settings()["check_every"] == every
    trainer.close()
    backend.close()
    assert all(other == said for other in everyone)
    assert said[:-1] == [None] * (every - 1)
    if world.Get_size() > 1:
        assert replicas[0].names()[2] in said[-1]
