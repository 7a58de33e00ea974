"""Optimizers by name: both frameworks against the formulas in NumPy, and how the learning rate changes."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import torch
from pydantic import ValidationError

from dlscale.collectives.registry import connect
from dlscale.models import NAMES as WORKLOADS
from dlscale.models import load_workload
from dlscale.models.frameworks import _tensorflow_optimizers, _torch_optimizers
from dlscale.models.optimizers import OPTIMIZERS, RateSchedule, optimizer_rule
from dlscale.models.workload import Execution, Input, Shard

NAMES = ("layer.weight", "layer.bias", "layer.norm.weight")
FIRST = [
    np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32),
    np.zeros(5, np.float32),
    np.ones(5, np.float32),
]
RATES = [0.1, 0.1, 0.4, 0.4, 0.05]  # changes while there is momentum
GRADIENTS = [
    [np.random.default_rng((2, step)).standard_normal(w.shape).astype(np.float32) for w in FIRST]
    for step in range(len(RATES))
]
RULES = {"sgd": optimizer_rule("sgd", momentum=0.9), "adam": optimizer_rule("adam")}
RESNET, DECAY = "resnet50", 0.05  # its own optimizer has Nesterov's momentum and weight decay
RULES[RESNET] = RULES["sgd"]


def by_hand(case):
    """The weights after all steps, in float64."""
    rule = RULES[case]
    weights = [weight.astype(float) for weight in FIRST]
    first, second = ([np.zeros_like(weight) for weight in weights] for _ in range(2))
    for step, (rate, gradients) in enumerate(zip(RATES, GRADIENTS, strict=True), start=1):
        for place, (name, gradient) in enumerate(zip(NAMES, gradients, strict=True)):
            weight = weights[place]
            if rule.name == "adam":
                first[place] = 0.9 * first[place] + 0.1 * gradient
                second[place] = 0.999 * second[place] + 0.001 * gradient**2.0
                means = first[place] / (1 - 0.9**step), second[place] / (1 - 0.999**step)
                weights[place] = weight - rate * means[0] / (np.sqrt(means[1]) + 1e-8)
                continue
            decay = DECAY if case == RESNET and ".norm." not in name else 0.0
            full = gradient + decay * weight
            first[place] = rule.momentum * first[place] + full
            ahead = full + rule.momentum * first[place] if case == RESNET else first[place]
            weights[place] = weight - rate * ahead
    return weights


def in_torch(case):
    parameters = [torch.nn.Parameter(torch.from_numpy(weight.copy())) for weight in FIRST]
    if case == RESNET:
        network = SimpleNamespace(named_parameters=lambda: zip(NAMES, parameters, strict=True))
        optimizer = _torch_optimizers.momentum_sgd(
            network, learning_rate=1.0, momentum=0.9, weight_decay=DECAY
        )
    else:
        optimizer = _torch_optimizers.named_optimizer(RULES[case], parameters, learning_rate=1.0)
    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            np.testing.assert_array_equal(parameter.grad, gradient, "a bucket of the exchange")
    return [parameter.detach().numpy() for parameter in parameters]


def in_tensorflow(case):
    variables = [tf.Variable(weight, name=name) for name, weight in zip(NAMES, FIRST, strict=True)]
    if case == RESNET:
        optimizer = _tensorflow_optimizers.MomentumSgd(learning_rate=1.0, momentum=0.9, weight_decay=DECAY)
    else:
        optimizer = _tensorflow_optimizers.named_optimizer(RULES[case], variables, learning_rate=1.0)
    optimizer.make_slots(variables)

    @tf.function
    def step(*given):
        optimizer.apply_gradients(zip(given, variables, strict=True))

    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        optimizer.set_rate(rate)
        step(*map(tf.constant, gradients))
    assert step.experimental_get_tracing_count() == 1
    return [variable.numpy() for variable in variables]


@pytest.mark.parametrize("train", [in_torch, in_tensorflow])
@pytest.mark.parametrize("name", [*OPTIMIZERS, RESNET])
def test_updates_are_those_of_the_formulas(name, train):
    for found, expected in zip(train(name), by_hand(name), strict=True):
        # TensorFlow's Adam keeps powers of 0.999 in float32, whose distance from 1 is known less well.
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 if name == "adam" else 1e-6)


def test_the_rate_rises_linearly_and_then_falls_in_steps():
    schedule = RateSchedule(first_rate=0.1, warm_up_samples=100, decay_samples=[300, 500])
    rates = {samples: schedule.rate(0.5, samples) for samples in (0, 25, 50, 100, 299, 300, 499, 500, 10**9)}
    assert rates == pytest.approx(
        {0: 0.1, 25: 0.2, 50: 0.3, 100: 0.5, 299: 0.5, 300: 0.05, 499: 0.05, 500: 0.005, 10**9: 0.005}
    )
    assert RateSchedule(first_rate=0.1).rate(0.5, 0) == 0.5
    for wrong in ([500, 300], [300, 300]):
        with pytest.raises(ValidationError, match="are not in ascending order"):
            RateSchedule(first_rate=0.1, decay_samples=wrong)


def test_an_optimizer_takes_only_its_own_terms():
    assert optimizer_rule("sgd").model_dump() == {"name": "sgd", "momentum": 0.0}
    with pytest.raises(ValueError, match="adam has no momentum"):
        optimizer_rule("adam", momentum=0.5)


def build(framework, *, source=None, **terms):
    facts = load_workload("hep_cnn")
    execution = Execution(learning_rate=0.5, optimizer=optimizer_rule(**terms))
    return facts.factory(
        framework=framework, preset="tiny", local_batch=4, source=source or Input(), execution=execution
    )


@pytest.mark.parametrize("terms", [{"name": "sgd", "momentum": 0.9}, {"name": "adam"}])
def test_replicas_of_both_frameworks_take_the_same_steps(terms):
    """From the same weights with the same gradients; torch's see them in another memory format."""
    torches, flows = (
        build(framework, **terms)(shard=Shard(), seed=1) for framework in ("torch", "tensorflow")
    )
    first = torches.weights()
    flows.load(first)
    for rate in (0.5, 0.25):
        gradients = torches.gradients()
        for replica in (torches, flows):
            replica.set_learning_rate(rate)
            replica.apply(gradients)
    for begin, one, other in zip(first, torches.weights(), flows.weights(), strict=True):
        assert np.any(one != begin)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_the_gate_keeps_plain_sgd_with_rate_1(framework):
    replica = build(framework, name="sgd", momentum=0.9)(shard=Shard(), seed=1, gate=True)
    before, gradients = replica.weights(), replica.gradients()
    replica.apply(gradients)
    for old, gradient, new in zip(before, gradients, replica.weights(), strict=True):
        np.testing.assert_allclose(new, old - gradient, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_trainer_follows_the_rate_of_its_replica_and_resumes(framework):
    """Torch's trainers give the optimizer flat views of the parameters."""
    replicas = []
    data = load_workload("hep_cnn").input("tiny")

    def trainer():
        factory = build(framework, source=data, name="sgd", momentum=0.9)

        def make(*, shard, seed, gate=False):
            replicas.append(factory(shard=shard, seed=seed, gate=gate))
            return replicas[-1]

        return connect("none", control=None).distribute(make, shard=Shard(), seed=1)

    def steps(trained, *rates):
        for rate in rates:
            replicas[-1].set_learning_rate(rate)
            trained.step()
        return trained.weights()

    one = trainer()
    begun = one.weights()
    before = steps(one, 0.02, 0.02)
    state = one.state()
    whole = steps(one, 0.01)
    resumed = trainer()
    resumed.restore(state)
    for expected, found in zip(whole, steps(resumed, 0.01), strict=True):
        np.testing.assert_array_equal(found, expected)
    idle = trainer()
    for first, unchanged in zip(begun, steps(idle, 1e-12), strict=True):
        np.testing.assert_allclose(unchanged, first, rtol=1e-6, atol=1e-9)
    assert any(np.any(old != new) for old, new in zip(before, whole, strict=True))


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workloads_optimizer_is_the_one_that_its_network_has(name):
    facts = load_workload(name)
    program = importlib.import_module(f"dlscale.models.{name}._torch").program(
        facts.preset("tiny"), gate=False
    )
    kinds = {type(objective.optimizer).__name__.lower() for objective in program.objectives}
    assert kinds == {facts.optimizer}
