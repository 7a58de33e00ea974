"""Users' files, written for a test."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dlscale.models.own import own_workload
from dlscale.models.own.facts import read_facts
from dlscale.models.own.model import FilePlace
from dlscale.models.workload import Execution

TORCH = """
import numpy as np
import torch

def model():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))

loss = torch.nn.CrossEntropyLoss()

def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=2e-3)

def data():
    features = np.random.default_rng(0).normal(size=(200, 6))
    return features, (features[:, 0] > 0).astype(int)
"""

WriteFile = Callable[..., Path]


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    """Writes the torch file, changed by (old, new) pairs, or another text."""

    def write(*changes: tuple[str, str], text: str = TORCH, name: str = "mine.py") -> Path:
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def factory(path, *, source=None, **execution):
    """What makes replicas of a file's network, in batches of 8."""
    facts = read_facts(path)
    workload = own_workload(facts, FilePlace(path, path.absolute()))
    return workload.factory(
        framework=facts.framework,
        preset="own",
        local_batch=8,
        source=source or workload.input("own"),
        execution=Execution(**execution),
    )
