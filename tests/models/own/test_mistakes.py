"""A mistake in a user's file is one line that names it, found before a study begins."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.models.own.facts import read_facts


def above_loss(code: str) -> tuple[str, str]:
    """The change that puts code above the file's loss."""
    return "\nloss =", f"\n{code}\nloss ="


def above_data(code: str) -> tuple[str, str]:
    """The change that puts code above the file's data."""
    return "def data():", f"{code}\ndef data():"


def giving(statement: str) -> tuple[str, str]:
    """The change by which data() ends otherwise, on its line 15."""
    return "    return features, (features[:, 0] > 0).astype(int)", f"    {statement}"


def layer(code: str, *, attributes: str = "") -> list[tuple[str, str]]:
    """The changes by which a layer of the user's is called."""
    text = f"class Layer(torch.nn.Module):\n{attributes}    def forward(self, x):\n{code}\n"
    return [("torch.nn.ReLU()", "Layer()"), above_loss(text)]


WHOLE_NUMBERS = "return (features > 0) * 1, 1 * (features[:, 0] > 0)"
HALF = "class Half(torch.nn.Sequential):\n    def forward(self, x):\n        return x[:, :2] + self[0].bias[:2]\n"
TIED = """
class Tied(torch.nn.Sequential):
    def __init__(self, *layers):
        super().__init__(*layers)
        self.other = torch.nn.Linear(6, 8)
        self.other.weight.data = self[0].weight.data
"""
CENTRED = "CENTRE = torch.zeros(2, requires_grad=True)\nbase ="
CENTRED_LOSS = "def loss(outputs, labels):\n    return base(outputs - CENTRE, labels)\n"
SCRIPT = "for data, target in loader:\n    loss.backward()\n"
ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--required", required=True)
parser.parse_args()
"""
CLOSED_OVER = """
def make():
    centre = torch.zeros(2, requires_grad=True)
    return lambda outputs, labels: base(outputs - centre, labels)

loss = make()
"""
UNIT = """
class Unit(torch.nn.Sequential):
    def forward(self, x):
        with torch.no_grad():
            self[0].weight.div_(self[0].weight.norm())
        return super().forward(x)
"""
HOOKED = """
class Hooked(torch.nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.weight.register_post_accumulate_grad_hook(lambda p: p.grad.clamp_(-1, 1))
"""
COMPILED = """
class Compiled(torch.nn.Sequential):
    _orig_mod = None  # as networks of torch.compile have
"""
MADE = "return torch.optim.Adam(parameters, lr=2e-3)"
SCHEDULED = """made = torch.optim.SGD(parameters, 0.1)
    torch.optim.lr_scheduler.OneCycleLR(made, 0.1, 9)
    return made"""
OF_ANOTHER = "return torch.optim.Adam(model().parameters())"
NEGATIVE = """
class Negative:
    def __len__(self):
        return -1
    def __getitem__(self, index):
        return np.zeros(6), 1
"""
TRAINED = "net = model()\nfor sample in []:\n    base(net(sample)).backward()\n"
MISTAKES = {
    "no optimizer": ([("def optimizer(", "def optimiser(")], "mine.py: optimizer is missing; it needs model, loss"),
    "a script": ([above_data(SCRIPT)], "mine.py, line 13: the file trains by itself there; leave that out"),
    "a script of Keras": ([above_data("model.fit(1, 2)\n")], "mine.py, line 13: the file trains by itself there"),
    "a script with functions": ([above_data(TRAINED)], "mine.py, line 15: the file trains by itself there"),
    "a module beside it": ([above_data("import mine")], "modules beside the file are not copied with it: install them"),
    "arguments": ([above_loss(ARGUMENTS)], "mine.py, line 12: the file raised SystemExit: 2"),
    "syntax": ([("def model():", "def model(:")], "mine.py, line 5: the file raised SyntaxError"),
    "nested": ([("def model():", "x = " + 9000 * "-" + "1\ndef model():")], "mine.py: an expression is nested deeper"),
    "raises": ([above_data("1 / 0")], "mine.py, line 13: the file raised ZeroDivisionError"),
    "exits": ([above_data("raise SystemExit(3)")], "line 13: the file raised SystemExit: 3"),
    "a network": ([("def model():\n    return", "model =")], "model must be a function, found a Sequential"),
    "no network": ([("return torch.nn.Sequential", "return list")], "mine.py, line 6: model() raised TypeError"),
    "nothing": ([("    return torch.nn.Sequential(", "    torch.nn.Sequential(")], "model() returned a NoneType"),
    "one network": (
        [("def model():\n    return", "NET ="), above_loss("def model():\n    return NET\n")],
        "model() returns 0.weight again when it is called again",
    ),
    "shared memory": ([("torch.nn.Sequential(", "Tied("), above_loss(TIED)], "0.weight and other.weight share memory"),
    "no shape": ([("torch.nn.Linear(6, 8)", "torch.nn.LazyLinear(8)")], "0.weight has no shape before the first batch"),
    "averages over ranks": ([("torch.nn.ReLU()", "torch.nn.SyncBatchNorm(8)")], "SyncBatchNorm averages over ranks by"),
    "sparse": (
        [("torch.nn.Linear(6, 8)", "torch.nn.EmbeddingBag(9, 8, sparse=True)"), giving(WHOLE_NUMBERS)],
        "gradients of 0.weight are sparse, and ranks average whole ones; write sparse=False",
    ),
    "unused": ([("torch.nn.Sequential(", "Half("), above_loss(HALF)], "the loss does not depend on 0.weight, 3.w"),
    "counts calls": (
        layer("        self.calls += 1\n        return x / self.calls", attributes="    calls = 0\n\n"),
        "keep what it counts in a buffer (register_buffer)",
    ),
    "a generator in every call": (
        layer("        return x * float(np.random.default_rng().normal())"),
        "draw from the generators of torch, NumPy or Python, not from one that is made in every call",
    ),
    "sum": ([("CrossEntropyLoss()", "CrossEntropyLoss(reduction='sum')")], "it is a sum over them, and ranks average"),
    "weights of the loss": (
        [("\nloss =", f"\n{CENTRED}"), above_data(CENTRED_LOSS)],
        "CENTRE is trained and is no weight of model()",
    ),
    "weights that nothing names": (
        [("\nloss =", "\nbase ="), above_data(CLOSED_OVER)],
        "a tensor of shape (2) is trained and is no weight of model()",
    ),
    "hooks after gradients": ([("torch.nn.Linear(6, 8)", "Hooked(6, 8)"), above_loss(HOOKED)], "0.weight has a hook"),
    "overwrites its weights": (
        [("torch.nn.Sequential(", "Unit("), above_loss(UNIT)], "the network overwrites 0.weight while it computes"
    ),
    "compiled": (
        [("return torch.nn.Sequential(", "return Compiled("), above_loss(COMPILED)], "with --set compiled=yes"
    ),
    "a scheduler": ([(MADE, SCHEDULED)], "line 10: the optimizer has a schedule of torch.optim.lr_scheduler, which no"),
    "others' weights": ([(MADE, OF_ANOTHER)], "line 10: optimizer(parameters) leaves out 4 of the 4 parameters"),
    "no rate": ([("lr=2e-3", "lr=0.0")], "the optimizer has a learning rate of 0; all need one above 0"),
    "a class": ([("CrossEntropyLoss()", "CrossEntropyLoss")], "loss is a class; write loss = CrossEntropyLoss()"),
    "no optimizer made": ([("return torch.optim.Adam", "torch.optim.Adam")], "optimizer(parameters) returned a None"),
    "wrong input": ([("size=(200, 6)", "size=(200, 5)")], "the network on a batch of data() raised RuntimeError"),
    "too small": ([("(200, 6)", "(20, 6)"), above_loss("local_batch = 64")], "20 samples, fewer than one"),
    "no labels": ([giving("return features")], "sample 0 of data() is a ndarray; it must be (features, l"),
    "unequal": ([giving("return features, np.zeros(7)")], "shapes (200, 6) and (7)"),
    "ragged": (
        [giving("return [[1.0] * (1 + n % 3) for n in range(200)], np.zeros(200)")],
        "mine.py, line 13: data() returned features of which NumPy makes no array (ValueError:",
    ),
    "text": ([giving("return features, np.array(['cat'] * 200)")], "line 13: data() returned labels of type text;"),
    "dates": ([giving("return features, np.array(['2020-01-01'] * 200, 'M8[D]')")], "returned labels of type date"),
    "objects": ([giving("return features.astype(object), np.zeros(200)")], "returned features of type Python object"),
    "on no device": ([giving("return torch.zeros(200, 6, device='meta'), np.zeros(200)")], "NumPy makes no array"),
    "an array for a number": ([above_loss("clip_norm = -np.ones((9, 9))")], "clip_norm must be a number above 0"),
    "masked": ([giving("return np.ma.masked_less(features, 0), np.zeros(200)")], "features with masked values"),
    "sparse samples": (
        [giving("return torch.tensor(features).to_sparse(), np.zeros(200)")],
        "mine.py, line 13: data() returned features of which NumPy makes no array (TypeError:",
    ),
    "negative": (
        [giving("return Negative()"), above_loss(NEGATIVE)],
        "len() of data() raised ValueError: __len__() should return >= 0",
    ),
    "samples of another kind": ([giving("return [{'x': x} for x in features]")], "sample 0 of data() is a dict; it mu"),
    "split": (
        [giving("return (features, features), (features, features)")],
        "line 13: data() returned 2 parts with (features, labels) each; return all samples as one",
    ),
    "a dictionary": ([giving("return {'x': features}")], "line 13: data() returned a dict; return (features, labels)"),
    "unseeded": ([("default_rng(0)", "default_rng()")], "line 13: data() gives other samples when it is called again"),
    "raises later": (
        [giving("for n in range(9):\n        yield features[n], 6 // (5 - n)")],
        "line 16: data() after 5 samples raised ZeroDivisionError",
    ),
    "another shape": (
        [giving("for n in range(9):\n        yield features[n, : 6 - n // 7], 1")],
        "line 16: data() yielded shapes (5) and () for sample 7",
    ),
    "ends early": (
        [giving("yield features[0], 1"), above_loss("num_samples = 40")],
        "data() ended after 1 samples, and the file says num_samples = 40",
    ),
    "no batch": ([above_loss("local_batch = 0")], "local_batch must be a positive whole number, found 0"),
    "metric": ([above_loss("metrics = ['auc']")], "metrics must be a dictionary of functions"),
    "labels first": (
        [above_loss("metrics = {'auc': lambda y_true, y_pred: 1.0}")],
        "metric auc takes labels first, and it is called as auc(outputs, labels); change the order",
    ),
    "a metric's class": (
        [above_loss("class Hits:\n    pass\nmetrics = {'hits': Hits}")], "metric hits is a class; write Hits()"
    ),
    "schedule that ends": (
        [above_loss("def schedule(step):\n    return [1, 0.1][step]\n")], "line 9: schedule(2) raised IndexError"
    ),
    "schedule": ([above_loss("schedule = [1, 0.1]")], "schedule must be a function, found a list; write def schedule("),
    "schedule below 0": ([above_loss("schedule = lambda step: -1")], "schedule(0) is -1.0; return 0 or more"),
    "clip": ([above_loss("clip_norm = 'no'")], "clip_norm must be a number above 0, found 'no'"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_is_one_line_that_names_the_file(write_file, name):
    changes, said = MISTAKES[name]
    with pytest.raises(UsageError) as caught:
        read_facts(write_file(*changes))
    text = str(caught.value)
    assert said in text
    assert text.startswith("mine.py")
    assert "\n" not in text


def test_a_script_is_not_run(write_file, tmp_path):
    """One that trains by itself would take hours before it is refused."""
    written = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    for change in (("def data(", "def other("), above_data(SCRIPT)):
        with pytest.raises(UsageError):
            read_facts(write_file(("import torch\n", f"import torch\n{written}"), change))
    assert not (tmp_path / "ran").exists()
