"""Whatever is in a file, an option or a folder of results, dlscale says so in one line: some inputs of each reader.

Their seeds are the same for everybody. `make fuzz` has new ones, and `make test-nightly` calls it.
"""

import pytest

from .target import Input
from .targets import TARGETS

pytestmark = [pytest.mark.requires("lmdb", "google_crc32c"), pytest.mark.filterwarnings("ignore")]

FEW_SECONDS = 10.0  # a target that may take longer is tried on few inputs
NUM_INPUTS, FEW = 50, 3


@pytest.mark.parametrize("name", TARGETS)
def test_a_whole_input_is_accepted_and_a_damaged_one_refused_in_one_line(name):
    target = TARGETS[name]
    inputs = Input(target)
    assert inputs.run(None).kind == "accepted", inputs.run(None).text
    number = FEW if target.seconds > FEW_SECONDS else round(NUM_INPUTS * target.share)
    for seed in range(number):
        outcome = inputs.run(seed)
        assert outcome.kind != "fault", (seed, outcome)
    inputs.close()


FOUND = [
    ("events of a job", b'"event"', b'"a"'),
    ("files of the kernel", b"0.08 0.03", b"# 0.03"),
    ("files of the kernel", b"K\n", "²\n".encode()),
    ("output of Slurm", b"PartitionName=gpu", b"PartitionName=big"),
    ("results", b'"status"', b'"report", "made-0a1b2c3d", "--full"'),
    ("results", b'"status"', b'"figures", "made-0a1b2c3d", "--only", "ecdf"'),
]


@pytest.mark.parametrize(("name", "old", "new"), FOUND)
def test_what_was_a_fault_once(name, old, new):
    inputs = Input(TARGETS[name])
    for path in inputs.make(None).rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(old, new))
    assert inputs.read().kind != "fault"
    inputs.close()
