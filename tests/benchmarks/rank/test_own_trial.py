"""What the check of a user's file lets pass can be trained, and taken again."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank.own_trial import checked
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
SCALED = """
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.0))
    def forward(self, x):
        return x * self.scale
"""
VOLUMES = """
class Volumes(torch.nn.Module):
    def __init__(self, *_):
        super().__init__()
        self.convolution = torch.nn.Conv3d(1, 8, (1, 2, 3))
    def forward(self, x):
        return self.convolution(x.reshape(-1, 1, 1, 2, 3)).flatten(1)
    def train(self, mode=True):
        super().train(mode)  # and returns nothing
"""
COUNTING = """
class Counting(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                p.sub_(p.grad, alpha=group["lr"] / state["step"])
"""
RATES = """
    parameters = list(parameters)
    slow = {"params": parameters[:2], "lr": 1e-4}
    return torch.optim.SGD([slow, {"params": parameters[2:]}], lr=1e-2, momentum=0.9)
"""
ACCEPTED = {
    "decay groups": [("    return torch.optim.Adam(parameters, lr=2e-3)", GROUPS)],
    "rates of groups": [("    return torch.optim.Adam(parameters, lr=2e-3)", RATES)],
    "a weight that is one number": [("torch.nn.ReLU()", "Scaled()"), above_loss(SCALED)],
    "convolutions of volumes": [("torch.nn.Linear(6, 8)", "Volumes(6, 8)"), above_loss(VOLUMES)],
    "an optimizer that counts": [("torch.optim.Adam(", "Counting("), above_loss(COUNTING)],
    "numbers of NumPy's": [above_loss("local_batch, clip_norm = np.int64(16), np.float32(1)")],
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
    "shapes": ([("torch.optim.Adam(", "torch.optim.Adafactor(")], "Adafactor changes weights otherwise when a step is"),
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


@pytest.mark.parametrize("name", list(ACCEPTED))
def test_what_people_write_is_accepted(write_file, name):
    checked(write_file(*ACCEPTED[name]))


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_would_fail_in_a_launch_is_refused(write_file, name):
    changes, said = REFUSED[name]
    with pytest.raises(UsageError) as caught:
        checked(write_file(*changes))
    assert said in str(caught.value)
    assert str(caught.value).startswith("mine.py")
