"""torch's optimizers told over the wire: what arrives is what was meant, and what cannot be cut is refused."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dlscale.base.errors import UsageError
from dlscale.collectives.grpc_ps._torch_optimizers import build, describe, sections
from dlscale.collectives.grpc_ps._torch_session import served_chunks
from dlscale.collectives.grpc_ps.messages import ELEMENTWISE, OptimizerSpec, RefusedError, Session, unpack

pytestmark = pytest.mark.requires("grpc_ps-torch")

UNUSUAL = {
    "SGD": {"lr": 1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "Adam": {"lr": 0.1, "betas": (0.5, 0.75), "amsgrad": True},
    "RMSprop": {"lr": 0.05, "centered": True, "momentum": 0.5},
    "Adagrad": {"lr": 0.1, "initial_accumulator_value": 0.25},
    "RAdam": {"lr": torch.tensor(0.25)},
}


def weights(count=11):
    return torch.nn.Parameter(torch.linspace(-1, 1, count))


def told(optimizer):
    """As the server reads it."""
    return OptimizerSpec.model_validate_json(describe(optimizer).model_dump_json())


def session_of(spec, *, count=11, num_workers=1, chunk_elements=4):
    return Session(
        number=0,
        num_workers=num_workers,
        asynchronous=False,
        chunk_elements=chunk_elements,
        regions=((count, 0),),
        optimizers=(spec,),
    )


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("changed", [False, True])
def test_what_is_built_has_what_was_described(name, changed):
    given = getattr(torch.optim, name)([weights()], **(UNUSUAL.get(name, {"lr": 0.03}) if changed else {}))
    built = build(told(given), weights())
    (expected,), (found,) = given.param_groups, built.param_groups
    del expected["params"], found["params"]
    assert type(built) is type(given)
    assert found == expected


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_chunks_are_updated_as_the_whole(name):
    parameter = weights()
    optimizer = getattr(torch.optim, name)([parameter], **UNUSUAL.get(name, {"lr": 0.03}))
    layout, chunks = served_chunks(session_of(told(optimizer)))
    held = parameter.detach().numpy().copy()
    for place, chunk in zip(layout, chunks, strict=True):
        chunk.load(held[place.offset : place.offset + place.count])
    generator = np.random.default_rng(1)
    for step in range(1, 6):
        gradient = generator.standard_normal(held.size).astype(np.float32)
        gradient.setflags(write=False)  # as messages are
        for index, (place, chunk) in enumerate(zip(layout, chunks, strict=True)):
            part = slice(place.offset, place.offset + place.count)
            message = unpack(chunk.apply(gradient[part], step), layout)
            assert (message.chunk, message.step) == (index, step)
            held[part] = message.values
        parameter.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        np.testing.assert_allclose(held, parameter.detach().numpy(), rtol=1e-5, atol=1e-6)


class Homemade(torch.optim.SGD):
    """May do anything."""


@pytest.mark.parametrize(
    ("optimizer", "name"),
    [
        pytest.param(lambda p: torch.optim.LBFGS([p]), "LBFGS", id="all gradients in one"),
        pytest.param(lambda p: torch.optim.Adafactor([p]), "Adafactor", id="rows and columns"),
        pytest.param(lambda p: Homemade([p], lr=0.1), "Homemade", id="a user's own"),
        pytest.param(
            lambda p: type("SGD", (torch.optim.SGD,), {})([p]), "SGD", id="another of the same name"
        ),
    ],
)
def test_optimizers_that_may_not_be_cut_are_refused(optimizer, name):
    with pytest.raises(
        UsageError, match=f"optimizer {name} does not allow; choose from torch.optim: SGD"
    ) as caught:
        describe(optimizer(weights()))
    assert "\n" not in str(caught.value)


def test_each_group_is_a_section_of_its_own():
    first, second, third = (torch.nn.Parameter(torch.ones(size)) for size in (2, 3, 4))
    groups = [{"params": [first, third]}, {"params": [second], "lr": 0.5, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.1, weight_decay=1e-4)
    objective = SimpleNamespace(parameters=(first, second, third), optimizer=optimizer)
    found = sections([objective])
    assert [[p.numel() for p in section.parameters] for section in found] == [[2, 4], [3]]
    rates = [section.optimizer.hyperparameters["lr"] for section in found]
    decays = [section.optimizer.hyperparameters["weight_decay"] for section in found]
    assert (rates, decays) == ([0.1, 0.5], [1e-4, 0.0])


@pytest.mark.parametrize(
    "hyperparameters", [{"lr": -1.0}, {"lr": "fast"}, {"speed": 1.0}, {"nesterov": True}, {"lr": None}]
)
def test_hyperparameters_that_torch_does_not_take_are_refused(hyperparameters):
    with pytest.raises(RefusedError, match=r"^optimizer SGD: ") as caught:
        served_chunks(session_of(OptimizerSpec(name="SGD", hyperparameters=hyperparameters)))
    assert "\n" not in str(caught.value)


def test_what_only_a_step_finds_is_refused():
    """A worker's replica is on a GPU, say, and its optimizer's setting does not work on the servers' CPU."""
    _, (chunk, *_) = served_chunks(session_of(describe(torch.optim.Adam([weights()], capturable=True))))
    with pytest.raises(RefusedError, match=r"^Adam: .*capturable"):
        chunk.apply(np.ones(4, dtype=np.float32), 1)


def test_more_weights_than_there_is_memory_are_refused_at_once():
    spec = describe(torch.optim.SGD([weights()]))
    with pytest.raises(RefusedError, match=rf"a shard of {4 << 50} bytes; this machine has \d+"):
        served_chunks(session_of(spec, count=1 << 50))
