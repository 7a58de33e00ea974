"""Deferred updates: the order of parts, when they are made, and what cannot be deferred."""

import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.base.errors import UsageError
from dlscale.collectives.training.communication import Training
from dlscale.collectives.training.deferral import (
    NUM_MEASURED_STEPS,
    Timing,
    agreed,
    is_deferred,
    planned_order,
)


def in_milliseconds(*parts):
    return [Timing(ready=ready, seconds=seconds, needed=needed) for ready, seconds, needed in parts]


def test_the_layer_that_is_needed_first_overtakes_what_waits():
    # The last layer's two parts come first, one at a time on the link; the first layer's gradient comes meanwhile.
    assert planned_order(in_milliseconds((0, 10, 3), (0, 10, 3), (5, 10, 2), (8, 1, 1))) == [0, 3, 2, 1]


def test_nothing_waits_for_what_is_not_there():
    assert planned_order(in_milliseconds((30, 10, 1), (0, 10, 3), (20, 5, 2))) == [1, 2, 0]


TIMINGS = st.lists(st.tuples(st.floats(0, 50), st.floats(0, 10), st.integers(1, 5)), max_size=12)


@given(TIMINGS)
def test_every_part_goes_once_and_the_link_is_never_idle_beside_something_ready(parts):
    timings = in_milliseconds(*parts)
    order = planned_order(timings)
    assert sorted(order) == list(range(len(timings)))

    def end(order):
        now = 0.0
        for index in order:
            now = max(now, timings[index].ready) + timings[index].seconds
        return now

    by_readiness = sorted(range(len(timings)), key=lambda index: timings[index].ready)
    assert end(order) == pytest.approx(end(by_readiness))


class OnNodes:
    def __init__(self, num_nodes):
        self.num_nodes = num_nodes

    def settings(self):
        return {"num_nodes": self.num_nodes}

    def allreduce(
        self, buffer, op
    ):  # the other rank has everything later, takes longer, and uses it in another order
        assert op == "max"
        np.maximum(buffer, [2.0, -9.0, 4.0], out=buffer)


@pytest.mark.parametrize(
    ("num_nodes", "threads", "obstacle", "training", "expected"),
    [
        (2, True, "", Training(), True),
        (1, True, "", Training(), False),
        (2, False, "", Training(), False),
        (2, True, "it cannot", Training(), False),
        (2, True, "", Training(deferred=0), False),
        (1, True, "", Training(deferred=1), True),
        (2, True, "", Training(pipelined=True), False),
    ],
)
def test_it_is_deferred_where_threads_exchange_between_nodes(
    num_nodes, threads, obstacle, training, expected
):
    assert is_deferred(OnNodes(num_nodes), training, threads=threads, obstacle=obstacle) is expected


@pytest.mark.parametrize(
    ("threads", "obstacle", "said"),
    [(False, "", "give teams=1 too"), (True, "it is round", "but it is round")],
)
def test_what_was_asked_for_and_cannot_be_is_refused(threads, obstacle, said):
    with pytest.raises(UsageError, match=said):
        is_deferred(OnNodes(2), Training(deferred=1), threads=threads, obstacle=obstacle)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"deferred": 2}, "choose from: -1, 0, 1"), ({"deferred": 1, "pipelined": True}, "leave one out")],
)
def test_other_values_and_pipelined_ones_are_refused(options, said):
    with pytest.raises(UsageError, match=said):
        Training(**options)


def test_ranks_agree_on_the_last_and_on_the_exchange_without_waiting():
    assert agreed(OnNodes(2), in_milliseconds((1, 8, 4))) == in_milliseconds((2, 8, 4))
    assert agreed(OnNodes(2), in_milliseconds((3, 12, 2))) == in_milliseconds((3, 9, 4))


@pytest.mark.requires("torch")
class TestTorch:
    """Its trainer, over a collective that changes nothing."""

    @pytest.fixture
    def network(self):
        import torch
        from torch import nn

        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def trainer(self, collective, network, forward, **options):
        import torch
        from torch import nn

        from dlscale.collectives.training import _torch_buckets

        class Loss(nn.Module):
            def __init__(self):
                super().__init__()
                self.network = network

            def forward(self, batch):
                return forward(network, batch).square().mean()

        generator = torch.Generator().manual_seed(7)
        objective = types.SimpleNamespace(
            loss=Loss(),
            parameters=tuple(network.parameters()),
            optimizer=torch.optim.Adam(network.parameters(), lr=0.1, fused=True),
            keeps_graph=False,
        )
        replica = types.SimpleNamespace(
            objectives=[objective],
            compiled=False,
            sleeps=False,
            schedule=None,
            next_batch=lambda: (torch.randn(3, 4, generator=generator, requires_grad=True),),
            weights=lambda: [p.detach().numpy().copy() for p in network.parameters()],
        )
        return _torch_buckets.over(replica, [collective], Training(teams=1, **options))

    def test_a_layer_is_updated_before_it_is_called_and_not_earlier(self, alone, network, monkeypatch):
        monkeypatch.setattr("dlscale.collectives.training.deferral.LEAST_BUCKET_BYTES", 80)  # a layer each
        seen = []

        def forward(network, batch):
            for index, layer in enumerate(network):
                batch = layer(batch)
                seen.append((index, [float(p.detach().sum()) for p in network[4].parameters()]))
            return batch

        trainer = self.trainer(alone, network, forward, deferred=1)
        for _ in range(7):
            trainer.step()
        trainer.close()
        first, *_, last = seen[-5:]
        assert first[1] != last[1]  # the last layer was updated behind the first one's pass
        assert seen[4][1] == seen[0][1]  # and in a measured step before it began
        assert trainer.settings()["deferred_buckets"] == "3 of 3"

    def test_weights_of_layers_that_are_never_called_are_updated_at_once(self, alone, network, monkeypatch):
        from torch.nn import functional

        monkeypatch.setattr("dlscale.collectives.training.deferral.LEAST_BUCKET_BYTES", 80)

        def forward(network, batch):
            return network[2](functional.linear(network[0](batch), network[4].weight, network[4].bias))

        found = {}
        for deferred in (0, 1):
            state = {name: value.clone() for name, value in network.state_dict().items()}
            trainer = self.trainer(alone, network, forward, deferred=deferred)
            for _ in range(9):
                trainer.step()
            found[deferred] = trainer.weights()
            settings = trainer.settings()
            trainer.close()
            network.load_state_dict(state)
        assert settings["deferred_buckets"] == "2 of 3"
        assert all(np.array_equal(a, b) for a, b in zip(found[0], found[1], strict=True))

    def test_weights_that_are_read_before_their_own_layer_is_called_are_an_error(self, alone, network):
        from torch.nn import functional

        def forward(network, batch):
            return network(functional.linear(batch, network[4].weight))

        trainer = self.trainer(alone, network, forward, deferred=1)
        for _ in range(NUM_MEASURED_STEPS + 1):  # all are up to date when the order is planned
            trainer.step()
        with pytest.raises(UsageError, match="give deferred=0"):
            trainer.step()
        trainer.close()

    def test_an_optimizer_that_may_look_at_all_gradients_is_not_deferred(self):
        from dlscale.collectives.training._torch_deferred import obstacle_to_deferral

        optimizer = type("Clipping", (), {"__module__": "user"})()
        replica = types.SimpleNamespace(
            compiled=False, schedule=None, objectives=[types.SimpleNamespace(optimizer=optimizer)]
        )
        assert "Clipping may need all gradients at once" in obstacle_to_deferral(replica)
