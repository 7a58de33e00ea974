"""A device on the host for tests of staging: copies begin when they are asked for, and are made when somebody waits."""

from collections import deque
from threading import Lock

import numpy as np
import pytest
import torch

from dlscale.collectives.training._torch_buckets import Staging


class LateStaging(Staging):
    """What is read from host memory before its arrival is NaN, or what was there before."""

    def __init__(self):
        self._begun, self.num_begun, self._lock = deque(), 0, Lock()
        self.num_fetched = self.num_delivered = 0

    def memory(self, count, dtype, collective):  # noqa: ARG002
        return torch.full((count,), torch.nan, dtype=dtype)

    def fetch(self, tensor, host):
        with self._lock:
            self._begun.append((host, tensor.clone()))
            self.num_begun += 1
        self.num_fetched += tensor.numel()

    def on_host(self, tensor):
        host = torch.full_like(tensor, torch.nan)
        self.fetch(tensor, host)
        return host

    def arrival(self):
        last = self.num_begun

        def wait():
            with self._lock:
                while self._begun and self.num_begun - len(self._begun) < last:
                    host, values = self._begun.popleft()
                    host.copy_(values)

        return wait

    def on_device(self, host):
        self.num_delivered += host.numel()
        return host.clone()

    def deliver(self, host, tensor):
        self.num_delivered += host.numel()
        tensor.copy_(host)


@pytest.fixture
def late_staging():
    """Makes a staging per worker."""
    return LateStaging


class OthersHaveZeros:
    """The collective of rank 0; what it lends is not cleared."""

    rank = 0

    def __init__(self, size):
        self.size = size

    def empty(self, count, dtype="float32"):
        return np.full(count, np.nan, dtype)

    def allreduce(self, buffer, op="sum"):
        if op == "average":
            buffer /= self.size

    def settings(self):
        return {}


@pytest.fixture
def alone():
    return OthersHaveZeros(1)


@pytest.fixture
def of_two():
    return OthersHaveZeros(2)
