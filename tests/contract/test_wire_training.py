"""Training over a ring whose gradients travel as bfloat16."""

import numpy as np
import pytest

from dlscale.benchmarks.rank.gates import identity_gate
from dlscale.collectives.registry import connect

from .conftest import make_factory

pytestmark = pytest.mark.on_ranks(1, 2, 3)


@pytest.fixture
def backend(world):
    opened = []

    def connected(**options):
        opened.append(connect("ring", control=world, options={"wire": "bfloat16", **options}))
        return opened[-1]

    yield connected
    for one in opened:
        one.close()


@pytest.mark.parametrize(
    ("framework", "name", "pipelined"),
    [("torch", "cosmogan", False), ("torch", "hep_cnn", True), ("tensorflow", "hep_cnn", False)],
)
def test_the_gates_pass_and_know_of_the_rounding(backend, gates, shard, framework, name, pipelined):
    found = gates(backend(pipelined=pipelined), make_factory(framework, name))
    assert [name for name, gate in found.items() if not gate.passed] == []
    gradient = found["gradient"]
    assert gradient.tolerance == 2e-2
    assert "travelling as bfloat16" in gradient.detail
    # It was rounded indeed: over float32 the deviation stays below 1e-4.
    assert (gradient.value > 1e-4) == (shard.count > 1)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_every_gradient_has_a_residual_and_weights_stay_equal(backend, world, shard, framework):
    """Each element of all gradients belongs to one bucket, the same in every step."""
    opened = backend()
    trainer = opened.distribute(make_factory(framework), shard=shard, seed=3)
    lengths = []
    for _ in range(3):
        trainer.step()
        trainer.synchronize()
        kept = [ring.state() for ring in opened._gradients]
        lengths.append(sum(r.size for state in kept for name, r in state.items() if name.endswith("offers")))
    weights, settings = trainer.weights(), trainer.settings()
    trainer.close()
    assert identity_gate(weights, control=world).passed
    assert (settings["wire"], settings["error_feedback"]) == ("bfloat16", True)
    if shard.count == 1:
        assert lengths == [0, 0, 0]
    else:
        assert lengths == 3 * [sum(weight.size for weight in weights)]
        assert any(np.any(residual != 0) for state in kept for residual in state.values())


def test_without_feedback_nothing_is_kept(backend, shard):
    opened = backend(error_feedback=False)
    trainer = opened.distribute(make_factory("torch"), shard=shard, seed=3)
    trainer.step()
    trainer.synchronize()
    trainer.close()
    assert [ring.state() for ring in opened._gradients] == [{}]


class Bucket:
    """What DistributedDataParallel hands to a hook."""

    def __init__(self, index, tensor):
        self._index, self._tensor = index, tensor

    def index(self):
        return self._index

    def buffer(self):
        return self._tensor


def test_the_ddp_hooks_of_one_ring_do_not_share_residuals(world):
    """Two models, each with a hook: bucket 0 of one is another bucket than bucket 0 of the other."""
    torch = pytest.importorskip("torch")
    from dlscale.collectives import ring

    joined = ring.join(world, ring.Settings(wire="bfloat16"))
    hooks = [ring.torch_hook(joined, threads=False) for _ in range(2)]
    seen = []
    for step in range(2):
        for scale, hook in zip((1.0, 1000.0), hooks, strict=True):
            for index, count in enumerate((100, 70)):
                generator = torch.Generator().manual_seed(1 + world.Get_rank() + 10 * index)
                tensor = scale * torch.randn(count, generator=generator)
                hook(None, Bucket(index, tensor)).wait()
                seen.append((step, scale, index, tensor))
    kept = joined.state()
    for hook in hooks:
        hook.close()
    joined.close()
    assert len(kept) == (8 if world.Get_size() > 1 else 0)
    for step, scale, index, tensor in seen:
        other = next(t for s, c, i, t in seen if (s, c, i) == (step, 1.0, index))
        if scale == 1.0:
            continue
        # The same values a thousand times as large: were residuals shared, the smaller ones would drown.
        np.testing.assert_allclose(tensor.numpy(), 1000 * other.numpy(), rtol=0.05, atol=10)
