"""A user's network whose samples ranks can share: the page's example does what one device does."""

import re
from pathlib import Path

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.neighbours.gathering import in_threads
from dlscale.models.own import FilePlace, own_workload
from dlscale.models.own.facts import read_facts
from dlscale.models.workload import Shard

from .conftest import factory

PAGE = Path(__file__).parents[3] / "docs" / "split.md"
EXAMPLE = Path(__file__).parents[3] / "examples" / "tracks.py"
SPLIT = 3  # 16 blocks are 6 + 5 + 5


def test_the_page_shows_the_example_whole():
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown == EXAMPLE.read_text()


def test_ranks_with_rows_of_the_example_do_what_one_device_does():
    facts = read_facts(EXAMPLE)
    workload = own_workload(facts, FilePlace(EXAMPLE, EXAMPLE))
    assert (workload.splittable, workload.largest_split("own")) == (True, 16)
    make = factory(EXAMPLE, precision="fp64")

    weights = make(shard=Shard(), seed=1).weights()

    def trained(neighbours):
        replica = make(shard=Shard(neighbours=neighbours), seed=1)
        replica.load(weights)  # threads share torch's generator
        return replica.gradients(), replica.outputs(), replica.losses()

    whole, outputs, losses = trained(None)
    parts = in_threads(SPLIT, trained)
    for found, expected in zip(zip(*(part[0] for part in parts), strict=True), whole, strict=True):
        np.testing.assert_allclose(sum(found) / SPLIT, expected, rtol=1e-9, atol=1e-12)
    for _, (own,), loss in parts:
        np.testing.assert_allclose(own, outputs[0], rtol=1e-9)
        assert loss == pytest.approx(losses)


OF_ITS_OWN = "from dlscale.models.parallel._torch import WHOLE as layers\n\n\ndef model():"


@pytest.mark.parametrize(
    ("problem", "changes"),
    [
        ("maps of a multiple of 5 rows", [("block_rows = 4", "block_rows = 5")]),
        ("draws random numbers", [("layers.global_mean()", "layers.global_mean(), nn.Dropout()")]),
        (r"write model\(layers\)", [("def model(layers):", OF_ITS_OWN)]),
        (
            "labels are maps",
            [
                ("*(layers.global_mean(), nn.Linear(32, 2)),", ""),
                ("return images, labels", "return images, np.tile(labels[:, None, None], (16, 16))"),
            ],
        ),
    ],
)
def test_what_ranks_cannot_share_is_refused_before_a_study(write_file, problem, changes):
    path = write_file(*changes, text=EXAMPLE.read_text())
    with pytest.raises(UsageError, match=f"mine.py: block_rows=.*{problem}"):
        read_facts(path)
