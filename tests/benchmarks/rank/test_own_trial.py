"""What the check of a user's file lets pass can be trained, and taken again."""

from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank.own_trial import try_steps
from dlscale.models.own import FilePlace
from dlscale.models.own.facts import read_facts
from tests.models.own.conftest import write_file as write_file
from tests.models.own.test_mistakes import above_loss, giving, layer

SKIPPED = """
import random
class Skipped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(4)])
    def forward(self, x):
        for layer in self.layers:
            if random.random() < 0.5:
                x = x + layer(x)
        return x
"""
GROUPS = """
    matrices = [p for p in parameters if p.ndim > 1]
    others = [p for p in parameters if p.ndim < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}])
"""
STRIDED = """
class Strided(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 16)[:, ::2].t())
    def forward(self, x):
        return x @ self.weight
"""
KEPT = (
    "class Loss(torch.nn.CrossEntropyLoss):\n    calls = 1\n    def forward(self, *a):\n        self.calls += 1\n"
    "        return super().forward(*a) / self.calls\n"
)
CHECKPOINTED = (
    "        from torch.utils.checkpoint import checkpoint\n"
    "        return checkpoint(torch.tanh, x, use_reentrant=False)"
)
MEANS = """
class Means(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean
"""
ACCEPTED = {
    "decay groups": [("    return torch.optim.Adam(parameters, lr=2e-3)", GROUPS)],
    "skipped layers": [("torch.nn.ReLU()", "Skipped()"), above_loss(SKIPPED)],
    "strided weights": [("torch.nn.ReLU()", "Strided()"), above_loss(STRIDED)],
    "checkpointing": layer(CHECKPOINTED),
    "NumPy's generator": layer("        return x * float(np.random.normal())"),
    "a generator of the file": [
        *layer("        return x * float(RNG.normal())"), above_loss("RNG = np.random.default_rng()")
    ],
    "schedule and clipping": [above_loss("clip_norm = 0.01\ndef schedule(step):\n    return 0.5**step\n")],
    "batch norm": [("torch.nn.ReLU()", "torch.nn.BatchNorm1d(8)")],
    "buffers that are replaced": [("torch.nn.ReLU()", "Means()"), above_loss(MEANS)],
    "bad samples": [giving("features[150] = np.nan\n    return features, (features[:, 0] > 0).astype(int)")],
    "big-endian halves": [giving("return features.astype('>f2'), (features[:, 0] > 0).astype('>i8')")],
}  # fmt: skip
REFUSED = {
    "shapes": ([("torch.optim.Adam(", "torch.optim.Adafactor(")], "Adafactor changes weights otherwise when they are"),
    "a step of its own": (
        [("torch.optim.Adam(parameters, lr=2e-3)", "torch.optim.LBFGS(parameters)")],
        "mine.py: a step of the optimizer raised TypeError",
    ),
    "state of the loss": (
        [("torch.nn.CrossEntropyLoss()", "Loss()"), above_loss(KEPT)],
        "the network gives other outputs for the same samples, weights and seeds",
    ),
    "metric": (
        [above_loss("metrics = {'wrong': lambda outputs, labels: 1 / 0}")],
        "metric wrong(outputs, labels) raised ZeroDivisionError",
    ),
}  # fmt: skip


def tried(path: Path) -> None:
    place = FilePlace(path, path.absolute())
    try_steps(read_facts(path), place)


@pytest.mark.parametrize("name", list(ACCEPTED))
def test_what_people_write_is_accepted(write_file, name):
    tried(write_file(*ACCEPTED[name]))


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_would_fail_in_a_launch_is_refused(write_file, name):
    changes, said = REFUSED[name]
    with pytest.raises(UsageError) as caught:
        tried(write_file(*changes))
    assert said in str(caught.value)
    assert str(caught.value).startswith("mine.py")
