"""What workloads state of a step's layers, against their networks: weights, operations, order of gradients."""

import itertools

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from dlscale.models import NAMES, load_workload
from dlscale.models.layers import backward_shares, step_flops
from dlscale.models.workload import Input, Shard

PRESETS = [(name, preset) for name in NAMES for preset in load_workload(name).presets]


def layers_of(workload, preset):
    facts = load_workload(workload)
    return facts.layers(facts.preset(preset))


@pytest.mark.parametrize(("workload", "preset"), PRESETS)
def test_layers_add_up_to_the_facts_of_the_preset(workload, preset):
    facts, layers = load_workload(workload).preset(preset), layers_of(workload, preset)
    assert sum(layer.kernel + layer.bias for layer in layers) == facts.num_parameters
    assert sum(layer.forward_flops for layer in layers if layer.forward) == facts.forward_flops_per_sample
    *_, (first, share) = backward_shares(layers)
    assert (first, share) == (layers[0], 1.0)


@pytest.mark.parametrize("workload", NAMES)
def test_layers_are_those_that_the_network_trains_in_the_order_in_which_gradients_are_ready(workload):
    """Counted while torch computes a step of `tiny`, so that a layer changed in the network alone is seen."""
    facts = load_workload(workload)
    make = facts.factory(framework="torch", preset="tiny", local_batch=2, source=Input())
    replica = make(shard=Shard(), seed=1, drawn=False)
    expected = [layer for layer, _ in backward_shares(layers_of(workload, "tiny")) if layer.kernel]
    sizes = {
        f"{layer.name}.{part}": count
        for layer in expected
        for part, count in (("weight", layer.kernel), ("bias", layer.bias))
        if count
    }
    weights = dict(zip(replica.names(), (weight.size for weight in replica.weights()), strict=True))
    assert weights == sizes

    parameters = [weight for objective in replica.objectives for weight in objective.parameters]
    ready = []
    for name, weight in zip(weights, parameters, strict=True):
        weight.register_hook(lambda _, name=name: ready.append(name.rpartition(".")[0]))
    # Its other kernels of attention are not counted.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        replica.gradients()
    assert counter.get_total_flops() == 2 * step_flops(layers_of(workload, "tiny"))
    assert [name for name, _ in itertools.groupby(ready)] == [layer.name for layer in expected]
