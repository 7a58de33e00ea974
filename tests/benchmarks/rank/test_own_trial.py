"""What the trial of a user's file lets pass can be trained."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank.own_trial import checked
from tests.models.own.conftest import write_file as write_file
from tests.models.own.test_mistakes import above_loss, giving, layer

GROUPS = """
    matrices = [p for p in parameters if p.ndim > 1]
    others = [p for p in parameters if p.ndim < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}])
"""
ACCEPTED = {
    "decay groups": [("    return torch.optim.Adam(parameters, lr=2e-3)", GROUPS)],
    "numbers of NumPy's": [above_loss("local_batch, clip_norm = np.int64(16), np.float32(1)")],
    "NumPy's generator": layer("        return x * float(np.random.normal())"),
    "schedule and clipping": [above_loss("clip_norm = 0.01\ndef schedule(step):\n    return 0.5**step\n")],
    "batch norm": [("torch.nn.ReLU()", "torch.nn.BatchNorm1d(8)")],
    "bad samples": [giving("features[150] = np.nan\n    return features, (features[:, 0] > 0).astype(int)")],
    "big-endian halves": [giving("return features.astype('>f2'), (features[:, 0] > 0).astype('>i8')")],
}  # fmt: skip


@pytest.mark.parametrize("name", list(ACCEPTED))
def test_what_people_write_is_accepted(write_file, name):
    checked(write_file(*ACCEPTED[name]))


def test_what_would_fail_in_a_launch_is_refused(write_file):
    change = ("torch.optim.Adam(parameters, lr=2e-3)", "torch.optim.LBFGS(parameters)")
    with pytest.raises(UsageError, match=r"^mine.py: a training step raised TypeError"):
        checked(write_file(change))
