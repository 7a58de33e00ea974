"""What algorithms without waiting promise over servers: their gates, updates, and the staleness that is measured."""

import numpy as np
import pytest

from .conftest import make_factory

pytestmark = pytest.mark.on_ranks(2)


@pytest.fixture
def downpour(any_served_pair, connected):
    """downpour(option=...): a backend that trains by it."""

    def connect_one(**options):
        return connected(*any_served_pair, algorithm="downpour", algorithm_options=options)

    return connect_one


@pytest.fixture
def factory(any_served_pair):
    return make_factory(any_served_pair[1])


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("downpour", {}),
        ("downpour", {"fetch_every": 3, "push_every": 2, "optimizer": "adagrad"}),
        ("downpour", {"push_every": 4}),
        ("easgd", {}),
        ("easgd", {"interval": 1}),
    ],
)
def test_the_gates_pass(any_served_pair, connected, factory, algorithm, options, verdicts):
    backend = connected(*any_served_pair, algorithm=algorithm, algorithm_options=options)
    assert backend.asynchronous
    assert verdicts(backend, factory) == {"broadcast": True, "gradient": True}


TURNS = {"audit_step", "audit_scale", "audit_samples", "audit_count"}


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("downpour", {"optimizer": "adam"}),
        ("downpour", {"fetch_every": 3, "push_every": 2, "optimizer": "adagrad"}),
        ("downpour", {"optimizer": "momentum"}),
        ("easgd", {"interval": 3}),
    ],
)
def test_turns_are_replayed(any_served_pair, connected, factory, algorithm, options, audits):
    backend = connected(*any_served_pair, algorithm=algorithm, algorithm_options=options)
    found = audits(backend, factory, 7)
    assert found.keys() == TURNS
    assert max(found.values()) < 1e-6


def test_worker_and_centre_are_drawn_together(any_served_pair, connected, factory, world, shard):
    """Algorithm 1 of the paper, in NumPy, for one worker while the other waits; a = 1 / 4."""
    options = {"interval": 2, "moving_rate": 0.5}
    backend = connected(*any_served_pair, algorithm="easgd", algorithm_options=options)
    trainer = backend.distribute(factory, shard=shard, seed=3)
    if shard.index == 0:
        alone = factory(shard=shard, seed=3)
        centre = alone.weights()
        for step in range(5):
            x = alone.weights()
            alone.apply(alone.gradients())
            if step in (2, 4):
                force = [np.float32(0.25) * (weight - c) for weight, c in zip(x, centre, strict=True)]
                alone.load([weight - f for weight, f in zip(alone.weights(), force, strict=True)])
                centre = [c + f for c, f in zip(centre, force, strict=True)]
            trainer.step()
        for found, expected in zip(
            trainer.weights() + trainer.own_weights(), centre + alone.weights(), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert trainer.num_applied() == 4
        assert trainer.staleness() == {0: 2}
    world.Barrier()
    trainer.close()


def test_a_planted_delay_gives_the_planted_staleness(downpour, factory, world, shard):
    trainer = downpour(fetch_every=4, push_every=4, learning_rate=0.001).distribute(
        factory, shard=shard, seed=3
    )
    for rank, num_steps in ((1, 1), (0, 12), (1, 3)):  # rank 1 pushes, at last, on weights of before rank 0's
        if rank == shard.index:
            for _ in range(num_steps):
                trainer.step()
            trainer.synchronize()
        world.Barrier()
    assert trainer.staleness() == {0: 3, 3: 1}
    assert trainer.num_applied() == 16
    world.Barrier()
    trainer.close()
