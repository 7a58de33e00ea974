"""A mistake in a user's file is one line that names it, found before a study begins."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank.own_trial import checked


def above_loss(code: str) -> tuple[str, str]:
    """The change that puts code above the file's loss, on line 8."""
    return "\nloss =", f"\n{code}\nloss ="


def above_data(code: str) -> tuple[str, str]:
    """The change that puts code above the file's data, on line 13."""
    return "def data():", f"{code}\ndef data():"


def giving(statement: str) -> tuple[str, str]:
    """The change by which data() ends otherwise, on its line 15."""
    return "    return features, (features[:, 0] > 0).astype(int)", f"    {statement}"


def layer(code: str, *, attributes: str = "") -> list[tuple[str, str]]:
    """The changes by which a layer of the user's is called."""
    text = f"class Layer(torch.nn.Module):\n{attributes}    def forward(self, x):\n{code}\n"
    return [("torch.nn.ReLU()", "Layer()"), above_loss(text)]


HALF = "class Half(torch.nn.Sequential):\n    def forward(self, x):\n        return x[:, :2] + self[0].bias[:2]\n"
CENTRED = "CENTRE = torch.zeros(2, requires_grad=True)\nbase ="
CENTRED_LOSS = "def loss(outputs, labels):\n    return base(outputs - CENTRE, labels)\n"
ARGUMENTS = (
    "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('x')\nparser.parse_args()\n"
)
COMPILED = "class Compiled(torch.nn.Sequential):\n    _orig_mod = None  # as networks of torch.compile have\n"
MADE = "return torch.optim.Adam(parameters, lr=2e-3)"
SCHEDULED = """made = torch.optim.SGD(parameters, 0.1)
    torch.optim.lr_scheduler.OneCycleLR(made, 0.1, 9)
    return made"""
NEGATIVE = (
    "class Negative:\n    __len__ = lambda _: -1\n    __getitem__ = lambda _, index: (np.zeros(6), 1)\n"
)
GATHERED = """
def loss(outputs, labels):
    import torch.distributed as dist
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(outputs)
    return torch.nn.functional.cross_entropy(outputs, labels)
"""
GATHERS = [("\nloss =", "\nbase ="), above_data(GATHERED)]
# name -> changes of the file, the line that the mistake names (0: none), and a word of what it says
MISTAKES = {
    "no optimizer": ([("def optimizer(", "def optimiser(")], 0, "optimizer"),
    "an import": ([above_data("import mine")], 13, "ModuleNotFoundError"),
    "arguments": ([above_loss(ARGUMENTS)], 11, "SystemExit"),
    "syntax": ([("def model():", "def model(:")], 5, "SyntaxError"),
    "nested": ([("def model():", "x = " + 9000 * "-" + "1\ndef model():")], 0, "the file raised"),
    "raises": ([above_data("1 / 0")], 13, "ZeroDivisionError"),
    "exits": ([above_data("import sys; sys.exit(3)")], 13, "SystemExit: 3"),
    "loops": ([above_data("while True: pass")], 13, "not done after"),
    "samples without an end": ([giving("while True: features += 0 * next(iter([1]))")], 15, "not done after"),
    "a network": ([("def model():\n    return", "model =")], 0, "Sequential"),
    "no network": ([("return torch.nn.Sequential", "return list")], 6, "TypeError"),
    "nothing": ([("    return torch.nn.Sequential(", "    torch.nn.Sequential(")], 5, "NoneType"),
    "one network": (
        [("def model():\n    return", "NET ="), above_loss("def model():\n    return NET\n")], 7, "0.weight"
    ),
    "no weights": ([("torch.nn.Linear(6, 8)", "torch.nn.Identity()"), ("torch.nn.Linear(8, 2)", "torch.nn.Identity()")],
                   5, "no trainable weights"),
    "no shape": ([("torch.nn.Linear(6, 8)", "torch.nn.LazyLinear(8)")], 0, "uninitialized"),
    "sparse": (
        [("torch.nn.Linear(6, 8)", "torch.nn.EmbeddingBag(9, 8, sparse=True)"),
         giving("return (features > 0) * 1, 1 * (features[:, 0] > 0)")], 5, "sparse=False",
    ),
    "unused": ([("torch.nn.Sequential(", "Half("), above_loss(HALF)], 5, "0.weight, 3.weight"),
    "counts calls": (
        layer("        self.calls += 1\n        return x / self.calls", attributes="    calls = 0\n\n"), 5,
        "register_buffer",
    ),
    "a generator in every call": (
        layer("        return x * float(np.random.default_rng().normal())"), 5, "in every call"
    ),
    "sum": ([("CrossEntropyLoss()", "CrossEntropyLoss(reduction='sum')")], 0, "sum"),
    "no scalar": ([("CrossEntropyLoss()", "CrossEntropyLoss(reduction='none')")], 0, "(32,)"),
    "weights of the loss": ([("\nloss =", f"\n{CENTRED}"), above_data(CENTRED_LOSS)], 0, "CENTRE"),
    "own exchange": (GATHERS, 17, "torch.distributed"),
    "compiled": ([("return torch.nn.Sequential(", "return Compiled("), above_loss(COMPILED)], 5, "compiled=yes"),
    "a scheduler": ([(MADE, SCHEDULED)], 10, "schedule(step)"),
    "others' weights": ([(MADE, "return torch.optim.Adam(model().parameters())")], 10, "4 of the 4"),
    "closure": ([("torch.optim.Adam(parameters, lr=2e-3)", "torch.optim.LBFGS(parameters)")], 0, "TypeError"),
    "no rate": ([("lr=2e-3", "lr=0.0")], 10, "rate of 0"),
    "a class": ([("CrossEntropyLoss()", "CrossEntropyLoss")], 0, "CrossEntropyLoss()"),
    "no optimizer made": ([("return torch.optim.Adam", "torch.optim.Adam")], 10, "NoneType"),
    "wrong input": ([("size=(200, 6)", "size=(200, 5)")], 0, "RuntimeError"),
    "too small": ([("(200, 6)", "(20, 6)"), above_loss("local_batch = 64")], 14, "20 samples"),
    "no labels": ([giving("return features")], 13, "ndarray"),
    "unequal": ([giving("return features, np.zeros(7)")], 13, "(7,)"),
    "ragged": ([giving("return [[1.0] * (1 + n % 3) for n in range(200)], np.zeros(200)")], 13, "ValueError"),
    "text": ([giving("return features, np.array(['cat'] * 200)")], 13, "labels"),
    "objects": ([giving("return features.astype(object), np.zeros(200)")], 13, "object"),
    "masked": ([giving("return np.ma.masked_less(features, 0), np.zeros(200)")], 13, "masked"),
    "negative": ([giving("return Negative()"), above_loss(NEGATIVE)], 0, "__len__"),
    "samples of another kind": ([giving("return [{'x': x} for x in features]")], 13, "dict"),
    "batches": ([giving("return torch.utils.data.DataLoader(range(9))")], 13, "batches"),
    "unseeded": ([("default_rng(0)", "default_rng()")], 13, "seed"),
    "raises later": ([giving("for n in range(9):\n        yield features[n], 6 // (5 - n)")], 16, "after 5 samples"),
    "another shape": ([giving("for n in range(9):\n        yield features[n, : 6 - n // 7], 1")], 13, "sample 7"),
    "no batch": ([above_loss("local_batch = 0")], 0, "local_batch"),
    "metric": ([above_loss("metrics = ['auc']")], 0, "metrics"),
    "schedule that ends": ([above_loss("def schedule(step):\n    return [1, 0.1][step]\n")], 9, "schedule(2)"),
    "schedule": ([above_loss("schedule = [1, 0.1]")], 0, "list"),
    "schedule below 0": ([above_loss("schedule = lambda step: -1")], 8, "schedule(0)"),
    "clip": ([above_loss("clip_norm = 'no'")], 0, "clip_norm"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_is_one_line_that_names_the_file(write_file, name):
    changes, line, said = MISTAKES[name]
    with pytest.raises(UsageError) as caught:
        checked(
            write_file(*changes), limit_seconds=2.0 if name in ("loops", "samples without an end") else 60.0
        )
    text = str(caught.value)
    assert text.startswith(f"mine.py, line {line}: " if line else "mine.py: ")
    assert said in text
    assert "\n" not in text


GROUPS = """
    matrices = [p for p in parameters if p.ndim > 1]
    others = [p for p in parameters if p.ndim < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}])
"""
FORCES = """class Layer(torch.nn.Module):
    def forward(self, x):
        x = x.requires_grad_(True) if x.is_leaf else x
        return x + torch.autograd.grad((x**3).sum(), x, create_graph=self.training)[0]
"""
CHANGES_FOLDER = "import os, tempfile\nos.chdir(tempfile.mkdtemp())"
ACCEPTED = {
    "decay groups": [(f"    {MADE}", GROUPS)],
    "numbers of NumPy's": [above_loss("local_batch, clip_norm = np.int64(16), np.float32(1)")],
    "NumPy's generator": layer("        return x * float(np.random.normal())"),
    "schedule and clipping": [above_loss("clip_norm = 0.01\ndef schedule(step):\n    return 0.5**step\n")],
    "batch norm": [("torch.nn.ReLU()", "torch.nn.BatchNorm1d(8)")],
    "bad samples": [giving("features[150] = np.nan\n    return features, (features[:, 0] > 0).astype(int)")],
    "big-endian halves": [giving("return features.astype('>f2'), (features[:, 0] > 0).astype('>i8')")],
    "derivatives by the input": [("torch.nn.Linear(6, 8),", "Layer(), torch.nn.Linear(6, 8),"), above_loss(FORCES)],
    "another folder": [above_loss(CHANGES_FOLDER)],
    "much printed": [above_loss("for _ in range(10_000): print('word ' * 20)")],
}  # fmt: skip


@pytest.mark.parametrize("name", list(ACCEPTED))
def test_what_people_write_is_accepted(write_file, name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    checked(write_file(*ACCEPTED[name]))


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_warning_of_the_frameworks_is_passed_on(write_file):
    changes = [
        ("CrossEntropyLoss()", "MSELoss()"),
        ("Linear(8, 2)", "Linear(8, 1)"),
        ("astype(int)", "astype(float)"),
    ]
    assert "target size" in checked(write_file(*changes)).warned
    assert not checked(write_file(name="other.py")).warned
