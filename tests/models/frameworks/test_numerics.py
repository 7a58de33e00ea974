"""What a process computes with, as each framework says it: a setting that lowers the precision of all is seen."""

import pytest

from dlscale.models.frameworks import framework_module


def torch_precision():
    import torch

    if not hasattr(torch.backends.mkldnn, "conv"):  # before torch 2.9
        torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32
        return lambda: setattr(torch.backends.cudnn, "allow_tf32", not torch.backends.cudnn.allow_tf32)
    torch.backends.mkldnn.conv.fp32_precision = "bf16"
    return lambda: setattr(torch.backends.mkldnn.conv, "fp32_precision", "none")


def torch_products():
    import torch

    torch.set_float32_matmul_precision("medium")
    return lambda: torch.set_float32_matmul_precision("highest")


def torch_threads():
    import torch

    number = torch.get_num_threads()
    torch.set_num_threads(number + 1)
    return lambda: torch.set_num_threads(number)


def tensorflow_precision():
    import tensorflow as tf

    switch = tf.config.experimental.enable_tensor_float_32_execution
    was = tf.config.experimental.tensor_float_32_execution_enabled()
    switch(not was)
    return lambda: switch(was)


@pytest.mark.parametrize(
    ("framework", "change"),
    [
        ("torch", torch_precision),
        ("torch", torch_products),
        ("torch", torch_threads),
        pytest.param("tensorflow", tensorflow_precision, marks=pytest.mark.requires("tensorflow")),
    ],
)
def test_a_framework_says_what_it_computes_with(framework, change):
    module = framework_module(framework)
    before = module.numerics()
    undo = change()
    try:
        assert module.numerics() != before
    finally:
        undo()
