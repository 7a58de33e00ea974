"""The two frameworks' networks are the same program, for every workload; and it is noticed if not."""

import dataclasses

import numpy as np
import pytest

from dlscale.models import NAMES, load_workload
from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.workload import Workload
from tests.parity.comparing import Pair, structure

pytestmark = [pytest.mark.slow, pytest.mark.requires("tensorflow")]


# In bf16 without inception_v3, which takes a minute and has no operation of its own to round.
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *((name, "fp32") for name in NAMES),
        *(pytest.param(name, "bf16", marks=pytest.mark.nightly) for name in NAMES if name != "inception_v3"),
    ],
)
def test_the_numbers_agree(name, precision):
    pair = Pair(load_workload(name), "tiny", precision)
    assert [gate for gate in pair.numbers() if not gate.passed] == []


# The network of `paper` on other images or in other batches.
AS_IN_PAPER = {("resnet50", "small"), ("inception_v3", "small")}
BY_DAY = {"gpt": "tiny"}  # that of paper takes 20 s to build
PRESETS = [(name, preset) for name in NAMES for preset in load_workload(name).presets]


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        pytest.param(*pair, marks=[] if pair[1] == BY_DAY.get(pair[0], "paper") else pytest.mark.nightly)
        for pair in PRESETS
        if pair not in AS_IN_PAPER
    ],
)
def test_the_structure_agrees(name, preset):
    gates = list(structure(load_workload(name), preset))
    assert [gate for gate in gates if not gate.passed] == []
    assert len(gates) == 1 + 2 * len(FRAMEWORKS)


def harmed(harm) -> Workload:
    """HEP-CNN with replicas that differ in TensorFlow."""

    class Harmed(Workload):
        def factory(self, **arguments):
            make = super().factory(**arguments)

            def build(**given):
                replica = make(**given)
                return harm(replica) if replica.framework == "tensorflow" else replica

            return build

    facts = load_workload("hep_cnn")
    return Harmed(**{field.name: getattr(facts, field.name) for field in dataclasses.fields(facts)})


def gates_of(workload):
    return [*structure(workload, "tiny"), *Pair(workload, "tiny", "fp32").numbers()]


def failed(workload):
    return {gate.name for gate in gates_of(workload) if not gate.passed}


def test_another_initialisation_order_or_name_is_noticed():
    def harm(replica):
        replica.names = lambda: list(reversed(type(replica).names(replica)))
        return replica

    assert "tiny: weights" in failed(harmed(harm))


def test_another_input_is_noticed():
    def harm(replica):
        first = replica.next_batch

        def next_batch():
            images, *others = first()
            return (1 - images, *others)

        replica.next_batch = next_batch
        return replica

    assert failed(harmed(harm)) >= {"tiny: outputs", "tiny: gradient", "tiny: loss"}


def test_another_optimizer_is_noticed():
    from dlscale.models.frameworks._tensorflow_optimizers import Adam

    def harm(replica):
        (objective,) = replica.objectives
        replica.objectives = (dataclasses.replace(objective, optimizer=Adam(3e-3)),)
        return replica

    assert failed(harmed(harm)) == {"tiny: loss_after"}


def test_nothing_that_is_not_a_number_passes():
    def harm(replica):
        load = replica.load
        replica.load = lambda weights: load([np.full_like(weight, np.nan) for weight in weights])
        return replica

    gates = {gate.name: gate for gate in gates_of(harmed(harm))}
    assert not gates["tiny: outputs"].passed
    assert gates["tiny: outputs"].value is None
