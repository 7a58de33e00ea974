"""Tests that need an NVIDIA GPU and a framework built for it; `make gpu-check` runs them and may skip none."""

import functools
import importlib.util
import os

import pytest

from dlscale.models.frameworks import FRAMEWORKS, gpu_module


@functools.cache
def problem(framework):
    """Why there is no GPU for a framework; None if there is one."""
    if not importlib.util.find_spec(framework):
        return f"{framework} is not installed"
    gpus = gpu_module(framework)
    return None if gpus.names() else f"{framework} {gpus.version()} sees no GPU (docs/gpu.md)"


@pytest.fixture(scope="session", params=FRAMEWORKS)
def framework(request):
    """A framework whose GPU 0 this process has taken."""
    reason = problem(request.param)
    if reason and request.param in os.environ.get("DLSCALE_REQUIRE_GPU", "").split(","):
        pytest.fail(f"DLSCALE_REQUIRE_GPU names {request.param}, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)
    gpu_module(request.param).take(0)
    return request.param
