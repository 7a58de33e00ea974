"""Top-1 accuracy of an image classifier on held-out images."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from dlscale.models import load_workload
from dlscale.models.quality.metric import HeldOut
from dlscale.models.samples import BadSample
from dlscale.models.workload import Input, Shard

PRESET = load_workload("resnet50").preset("tiny")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Class 0 is blue, class 1 red; the first of 40 blue images is red, too."""
    top = tmp_path_factory.mktemp("images")
    for name, colour in (("blue", (0, 0, 250)), ("red", (250, 0, 0))):
        (top / name).mkdir()
        for index in range(40):
            odd = name == "blue" and index == 0
            image = Image.new("RGB", (40, 30), (250, 0, 0) if odd else colour)
            image.save(top / name / f"{index:02d}.png")
    return top


@pytest.mark.parametrize("workload", ["resnet50", "inception_v3"])
def test_accuracy_on_central_crops_whatever_the_number_of_ranks(folder, workload):
    facts = load_workload(workload)
    source = Input(path=folder, held_out=0.5)
    held_out = HeldOut(facts.data(), facts.quality(), preset=PRESET, source=source)

    def by_colour(images):
        logits = np.zeros((len(images), PRESET.num_classes))
        logits[:, 1] = images[..., 0].mean(axis=(1, 2)) - images[..., 2].mean(axis=(1, 2))
        logits[:, 2:] = -1e9
        return logits

    def measured(predict, count):
        shares = [held_out.measure(predict, Shard(index=index, count=count)) for index in range(count)]
        return held_out.metrics([piece for share in shares for piece in share])

    alone = measured(by_colour, 1)
    assert alone == measured(by_colour, 3)
    # Sample 0, the odd one, is held out.
    assert alone["top1"] == 1 - 1 / held_out.num_samples
    assert measured(lambda images: np.full((len(images), 10), np.nan), 1) == {}


def test_bad_held_out_images_are_left_out_and_counted_on_demand(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "images")
    facts = load_workload("resnet50")
    source = Input(path=tmp_path / "images", held_out=0.5)
    whole = HeldOut(facts.data(), facts.quality(), preset=PRESET, source=source)
    bad = int(whole.indices[1])
    (tmp_path / "images" / "blue" / f"{bad:02d}.png").write_bytes(b"cut off")

    def measured(source):
        held_out = HeldOut(facts.data(), facts.quality(), preset=PRESET, source=source)
        pieces = list(held_out.measure(lambda images: np.zeros((len(images), 10)), Shard()))
        return held_out, sum(len(piece["correct"]) for _, piece in pieces)

    with pytest.raises(BadSample, match=f"{bad:02d}.png"):
        measured(source)
    held_out, num_measured = measured(replace(source, skip_bad=True))
    assert (held_out.bad, num_measured) == ({bad}, whole.num_samples - 1)
