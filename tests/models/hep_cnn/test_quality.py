"""HEP-CNN's metrics on held-out events, and that the number of ranks does not change them."""

from dataclasses import replace

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.models import load_workload
from dlscale.models.quality.metric import HeldOut, Metric
from dlscale.models.workload import Shard

FACTS = load_workload("hep_cnn")
PRESET = FACTS.preset("tiny")


def held_out(share=0.125):
    source = replace(FACTS.input("tiny"), held_out=share)
    return HeldOut(FACTS.data(), FACTS.quality(), preset=PRESET, source=source)


def brightness(images):
    """A network's stand-in: logits (N, 2) whose difference is an image's mean."""
    return np.stack([np.zeros(len(images)), images.mean(axis=(1, 2, 3))], axis=1)


def test_ranks_share_the_samples_and_get_the_same_metrics_to_the_last_bit():
    held = held_out()
    alone = held.metrics(list(held.measure(brightness, Shard())))
    for count in (2, 3):
        shares = [list(held.measure(brightness, Shard(index=index, count=count))) for index in range(count)]
        assert sum(len(measured["label"]) for share in shares for _, measured in share) == held.num_samples
        assert held.metrics([piece for share in reversed(shares) for piece in share]) == alone
    assert set(alone) == set(FACTS.quality().METRICS)
    assert 0.5 < alone["auc"] < 1


def test_metrics_of_scores_that_are_no_numbers_are_left_out():
    held = held_out()

    def broken(images):
        return np.full((len(images), 2), np.nan)

    assert held.metrics(list(held.measure(broken, Shard()))) == {}


def test_metrics_by_hand():
    """Of the pairs of a signal and a background event, 3 of 4 are in order; by weight 1 + 1 + 8 of 11."""
    measured = {
        "score": np.array([0.9, 0.2, 0.5, 0.1]),
        "label": np.array([1, 1, 0, 0]),
        "weight": np.array([1.0, 1.0, 1.0, 4.5]),
    }
    found = FACTS.quality().metrics(measured)
    assert found["auc"] == 0.75
    assert found["weighted_auc"] == pytest.approx((1 + 4.5 + 4.5) / 11)
    assert found["signal_efficiency"] == 0.5
    del measured["weight"]
    assert set(FACTS.quality().metrics(measured)) == {"auc", "signal_efficiency"}


def test_a_share_that_holds_out_nothing_is_refused():
    with pytest.raises(UsageError, match="of 4000 samples none is held out at a share of 1e-09"):
        held_out(1e-9)


@pytest.mark.parametrize(("higher", "reached"), [(True, [False, True, True]), (False, [True, True, False])])
def test_a_threshold_is_reached_from_its_side(higher, reached):
    metric = Metric(text="", higher_is_better=higher)
    assert [metric.reached(value, 0.5) for value in (0.4, 0.5, 0.6)] == reached
