"""The files: every number has a source, and none is from the figure that it predicts."""

import re

import pytest

from dlscale.analysis.published.claims import load_publication, load_publications
from dlscale.analysis.published.values import FOLDER
from dlscale.base.errors import UsageError


@pytest.fixture
def changed(tmp_path, published):
    """Load a file of ours with a text replaced; it must be there."""

    def load(name, was, becomes):
        text = (FOLDER / "claims" / f"{name}.toml").read_text()
        assert was in text
        path = tmp_path / f"{name}.toml"
        path.write_text(text.replace(was, becomes, 1))
        return load_publication(path, published)

    return load


def test_every_figure_with_axes_is_predicted_or_says_what_is_missing(published):
    predicted = {figure for mark in load_publications(published) for figure in mark.figures}
    for name, figure in published.figures.items():
        if figure.panels:
            assert bool(figure.missing) != (name in predicted), name


@pytest.mark.parametrize(
    ("name", "was", "becomes", "said"),
    [
        # an input from the curve itself, in its rows and in its words
        (
            "powerai-ddl",
            '{ figure = "goyal-7", quantity = "relative_time", x = 11264 }',
            '{ figure = "powerai-ddl-2", series = "Caffe", quantity = "efficiency", x = 256 }',
            "it is from powerai-ddl-2, the figure that it predicts, at 256 GPUs; only what that states up to 4",
        ),
        ("goyal", "120 ms of a step", "goyal-8", "its source is goyal-8, the figure that it predicts"),
        (
            "goyal",
            'quantity = "seconds_per_step", x = 256',
            'quantity = "seconds_per_step", x = 11264',
            "it is from goyal-7, the figure that it predicts, at 11264 images",
        ),
        # no source, a source from memory, no such row
        ("goyal", 'source = "a message of TCP"', 'source = " "', "source: a text is expected"),
        ("goyal", 'source = "a message of TCP"\n', "", "inputs.latency.source: it is missing"),
        ("goyal", 'kind = "derived"', 'kind = "recalled"', "inputs.backward.kind: 'text'"),
        (
            "goyal",
            "x = 256 }",
            "x = 512 }",
            "no such row in results/published: ResNet-50, seconds_per_step at 512",
        ),
        # names
        ("goyal", 'rate = "rate"', 'rate = "rat"', "no input 'rat'"),
        (
            "goyal",
            'network = "resnet50"',
            'network = "resnet"',
            "no network 'resnet'; choose one of: resnet50",
        ),
        ("goyal", 'goyal-8 = "ResNet-50"', 'goyal-8 = "ResNet"', "no series 'ResNet' is public in goyal-8"),
        ("goyal", "low = 0.192", "low = 2", "low 2 is above high 0.24"),
        # claims
        ("goyal", "An epoch takes about", "An epoch takes", "no statement 'An epoch takes 30 seconds"),
        ("goyal", 'reading = "about 30 s is taken for 27 to 33 s"', "", "without a reading"),
        ("goyal", 'curves = ["ResNet-50"]', 'curves = ["ResNet"]', "no curve 'ResNet'"),
        ("goyal", "at = 352", "", "check quantity needs at"),
    ],
)
def test_a_damaged_file_is_one_line(changed, name, was, becomes, said):
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        changed(name, was, becomes)
    assert "\n" not in str(caught.value)


def test_what_a_figure_states_of_its_base_is_an_input(changed):
    """The step of 256 images on the 8 GPUs that the curve begins with is a fact of one node."""
    assert changed("goyal", "low = 0.192", "low = 0.193").inputs["step"].low == 0.193
