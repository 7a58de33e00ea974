"""The networks in torch against their published facts, and what its two losses and their batch norm see."""

import numpy as np
import pytest
import torch
import torch.distributed
import torch.nn.functional as F  # noqa: N812
from torch.utils.flop_counter import FlopCounterMode

from dlscale.models.cosmogan import LATENT_SIZE, NETWORKS, WORKLOAD
from dlscale.models.cosmogan._torch import DiscriminatorLoss, GeneratorLoss, Networks
from dlscale.models.layers import step_flops
from dlscale.models.workload import Execution, Input, Shard

# MustafaMustafa/cosmoGAN, networks/models/dcgan.py: 64 filters, 256x256x1, z of 64; batch norm counts scale and shift.
PUBLISHED = {
    "discriminator.convolutions": [1_664, 204_928, 819_456, 3_277_312],
    "discriminator.norms": [256, 512, 1_024],
    "discriminator.dense": [131_073],
    "generator.dense": [8_519_680],
    "generator.norms": [1_024, 512, 256, 128],
    "generator.convolutions": [3_277_056, 819_328, 204_864, 1_601],
}


def replica(preset="tiny", *, local_batch=4, seed=1, gate=False, **execution):
    factory = WORKLOAD.factory(
        framework="torch",
        preset=preset,
        local_batch=local_batch,
        source=Input(),
        execution=Execution(**execution),
    )
    return factory(shard=Shard(), seed=seed, gate=gate)


def networks_of(trained):
    return trained.objectives[0].loss.networks


def on_meta(name):
    """Networks and a batch of one that have shapes and cost nothing."""
    preset = WORKLOAD.preset(name)
    with torch.device("meta"):
        maps, z, flip = torch.zeros(1, *preset.input_shape), torch.zeros(1, LATENT_SIZE), torch.zeros(1)
        return Networks(NETWORKS[name], size=preset.input_shape[1]), (maps, z, flip)


def layer_flops(name):
    """Of one forward pass of one sample: the discriminator's layers from the map on; the generator's are the
    same convolutions the other way, and another dense layer.
    """
    size, widths = WORKLOAD.preset(name).input_shape[1], NETWORKS[name].widths
    convolutions = [
        2 * 25 * widths[index] * widths[index + 1] * (size >> (index + 1)) ** 2 for index in range(4)
    ]
    num_dense = (size >> 4) ** 2 * widths[-1]
    return convolutions, 2 * num_dense, 2 * num_dense * LATENT_SIZE


def backward_both(objectives, batch):
    """As a trainer takes a step, but for the updates. Returns the discriminator's gradients after the first loss."""
    for objective in objectives:
        objective.optimizer.zero_grad()
    first, second = objectives
    first.loss(*batch).backward(inputs=list(first.parameters), retain_graph=first.keeps_graph)
    between = [parameter.grad.clone() for parameter in first.parameters]
    second.loss(*batch).backward(inputs=list(second.parameters))
    return between


def gradients_of(objectives):
    return [parameter.grad.clone() for objective in objectives for parameter in objective.parameters]


def assert_all_equal(ones, others):
    for one, other in zip(ones, others, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_every_layer_has_the_published_parameters():
    networks, _ = on_meta("paper")
    counted = {
        name: [
            sum(parameter.numel() for parameter in layer.parameters())
            for layer in (module if isinstance(module, torch.nn.ModuleList) else [module])
        ]
        for name, module in networks.named_modules()
        if name in PUBLISHED
    }
    assert counted == PUBLISHED
    assert sum(parameter.numel() for parameter in networks.generator.parameters()) == 12_824_449
    assert sum(parameter.numel() for parameter in networks.discriminator.parameters()) == 4_436_225


@pytest.mark.parametrize("name", WORKLOAD.presets)
def test_a_step_computes_nothing_twice(name):
    networks, batch = on_meta(name)
    first, second = DiscriminatorLoss(networks), GeneratorLoss(networks)
    with FlopCounterMode(display=False) as counter:
        first(*batch).backward(inputs=list(networks.discriminator.parameters()), retain_graph=True)
        second(*batch).backward(inputs=list(networks.generator.parameters()))
    convolutions, to_logit, from_z = layer_flops(name)
    discriminator, generator = sum(convolutions) + to_logit, sum(convolutions) + from_z
    # Two passes forward and back for its own loss, whose gradient ends at the maps, and one back for the generator.
    expected = 2 * (3 * discriminator - convolutions[0]) + discriminator
    expected += 3 * generator - from_z  # whose gradient ends at z
    assert counter.get_total_flops() == expected == step_flops(WORKLOAD.layers(WORKLOAD.preset(name)))
    if name == "paper":
        assert expected == pytest.approx(51e9, rel=0.01)


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_a_flip_exchanges_the_discriminators_labels_only(flip):
    trained = replica()
    maps, z, _ = trained.next_batch()
    networks = networks_of(trained)
    real, generated = networks.discriminator(maps), networks.discriminator(networks.generator(z))
    discriminator, generator = trained.objectives
    expected = F.binary_cross_entropy_with_logits(real, torch.full_like(real, 1 - flip))
    expected += F.binary_cross_entropy_with_logits(generated, torch.full_like(real, flip))
    torch.testing.assert_close(discriminator.loss(maps, z, torch.tensor([flip])), expected)
    expected = F.binary_cross_entropy_with_logits(generated, torch.ones_like(real))
    torch.testing.assert_close(generator.loss(maps, z, torch.tensor([flip])), expected)


def test_the_losses_belong_together():
    trained = replica()
    discriminator, generator = trained.objectives
    batch, other = trained.next_batch(), trained.next_batch()
    with pytest.raises(RuntimeError, match="follow the discriminator's, on the same batch"):
        generator.loss(*batch)
    discriminator.loss(*batch)
    with pytest.raises(RuntimeError, match="on the same batch"):
        generator.loss(*other)
    discriminator.loss(*batch)
    generator.loss(*batch)
    with pytest.raises(RuntimeError, match="on the same batch"):
        generator.loss(*batch)


def test_batch_norm_sees_two_batches_in_the_discriminator_and_one_in_the_generator():
    trained = replica()
    backward_both(trained.objectives, trained.next_batch())
    networks = networks_of(trained)
    assert [int(norm.num_batches_tracked) for norm in networks.discriminator.norms] == [2, 2, 2]
    assert [int(norm.num_batches_tracked) for norm in networks.generator.norms] == [1, 1, 1, 1]


def test_both_networks_run_with_channels_last():
    trained = replica()
    seen = []
    for module in networks_of(trained).modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.register_forward_hook(lambda _, inputs, output: seen.extend((inputs[0], output)))
    trained.objectives[0].loss(*trained.next_batch())
    assert len(seen) == 2 * (3 + 3 + 4)
    assert all(values.is_contiguous(memory_format=torch.channels_last) for values in seen)


def test_bf16_keeps_weights_and_gradients_in_float32():
    trained, exact = replica(precision="bf16", gate=True), replica(gate=True)
    batch = trained.next_batch()
    losses = [objective.loss(*batch) for objective in trained.objectives]
    expected = [objective.loss(*batch) for objective in exact.objectives]
    for loss, wanted in zip(losses, expected, strict=True):
        assert loss.dtype == torch.float32
        assert loss.item() != wanted.item()
        assert loss.item() == pytest.approx(wanted.item(), rel=0.02)
    assert {array.dtype for array in [*trained.gradients(), *trained.weights()]} == {np.dtype(np.float32)}


@pytest.mark.nightly
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor"
)  # torch.compile's own look at generated maps
def test_compiled_networks_have_the_same_gradients():
    trained = replica(gate=True)
    batch = trained.next_batch()
    backward_both(trained.objectives, batch)
    eager = gradients_of(trained.objectives)
    for objective in trained.objectives:
        objective.loss.compile(backend="aot_eager")
    between = backward_both(trained.objectives, batch)
    compiled = gradients_of(trained.objectives)
    assert_all_equal(compiled[: len(between)], between)
    for one, other in zip(eager, compiled, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_maps_are_predicted_with_running_statistics():
    trained = replica()
    z = np.random.default_rng(1).standard_normal((3, LATENT_SIZE), dtype=np.float32)
    fresh = trained.predict(z)
    assert fresh.shape == (3, 32, 32, 1)
    assert np.abs(fresh).max() < 1
    np.testing.assert_allclose(trained.predict(z[:1]), fresh[:1], atol=1e-6)  # nothing is shared by a batch
    backward_both(trained.objectives, trained.next_batch())
    assert not np.allclose(trained.predict(z), fresh)
    assert networks_of(trained).training
