"""Which optimizers of torch can update a part of a tensor, as sharding asks of them."""

import pytest
import torch

from dlscale.models.frameworks._torch_optimizers import obstacle_to_parts

pytestmark = pytest.mark.requires("torch")


class OfOneSign(torch.optim.SGD):
    """Every element of a tensor moves by the mean of its gradient."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = parameter.grad.mean().expand_as(parameter)
        return super().step(closure)


def made(kind, **options):
    return kind([torch.nn.Parameter(torch.ones(3, 2))], lr=0.1, **options)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.AdamW, {}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (torch.optim.RMSprop, {}),
    ],
)
def test_updates_of_elements_need_no_whole_tensor(kind, options):
    assert obstacle_to_parts(made(kind, **options)) == ""


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (lambda: made(OfOneSign), "OfOneSign does not update element by element"),
        (lambda: made(torch.optim.Adafactor), "Adafactor does not update element by element"),
        (lambda: made(torch.optim.LBFGS), "LBFGS cannot update a part of a tensor"),
    ],
)
def test_others_say_why(optimizer, reason):
    assert reason in obstacle_to_parts(optimizer())


def test_a_hook_before_the_step_needs_all_gradients():
    optimizer = made(torch.optim.SGD)
    optimizer.register_step_pre_hook(lambda *_: None)
    assert "hook before its step" in obstacle_to_parts(optimizer)
