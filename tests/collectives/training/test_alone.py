"""Trainers of a replica alone: steps with stamps train as those without, and TensorFlow traces a step once."""

import importlib

import numpy as np
import pytest

from dlscale.models import load_workload
from dlscale.models.workload import Input, Shard

TENSORFLOW = pytest.mark.requires("tensorflow")


def make_replica(framework, workload):
    factory = load_workload(workload).factory(
        framework=framework, preset="tiny", local_batch=2, source=Input()
    )
    return factory(shard=Shard(), seed=1)


def make_trainer(framework, workload):
    replica = make_replica(framework, workload)
    return importlib.import_module(f"dlscale.collectives.training._{framework}").alone(replica)


@pytest.mark.parametrize(
    ("framework", "workload", "num_passes"),
    [
        ("torch", "hep_cnn", 1),
        ("torch", "cosmogan", 2),  # each objective has a forward pass of its own
        pytest.param("tensorflow", "cosmogan", 1, marks=TENSORFLOW),
    ],
)
def test_stamped_steps_train_as_others_do_and_have_moments_in_order(framework, workload, num_passes):
    plain, stamped = make_trainer(framework, workload), make_trainer(framework, workload)
    for _ in range(2):
        plain.step()
        stamps = stamped.stamped_step()
    stamped.step()  # and both kinds go on from the same weights
    plain.step()
    assert stamped.losses() == pytest.approx(plain.losses(), rel=1e-4)
    for ours, theirs in zip(stamped.weights(), plain.weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    assert stamped.state().keys() == plain.state().keys()

    assert len(stamps.forward) == len(stamps.backward) == num_passes
    assert len(stamps.ready) == len(stamped.weights())
    assert 0 < stamps.fetched < stamps.forward[0] < stamps.end
    assert stamps.fetched < min(stamps.ready)
    assert max(stamps.ready) <= stamps.backward[-1] <= stamps.end


def test_torch_completes_the_gradients_of_the_last_layer_first_and_takes_its_hooks_away():
    trainer = make_trainer("torch", "hep_cnn")
    ready = trainer.stamped_step().ready
    weights = ready[::2]  # of the layers, in order; biases lie between
    assert list(weights) == sorted(weights, reverse=True)
    (objective,) = trainer._replica.objectives
    assert not any(parameter._post_accumulate_grad_hooks for parameter in objective.parameters)


@TENSORFLOW
def test_tensorflow_traces_a_step_once():
    """Tracing is most of a short launch: an optimizer that makes its variables meanwhile has it done twice."""
    from dlscale.collectives.training._tensorflow import alone

    replica = make_replica("tensorflow", "hep_cnn")
    differentiate, traced = replica.differentiate, []
    replica.differentiate = lambda *batch, **options: traced.append(batch) or differentiate(*batch, **options)
    trainer = alone(replica)
    for _ in range(2):
        trainer.step()
    assert len(traced) == 1
