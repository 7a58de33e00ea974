"""ROC curves against counting pairs and trying every threshold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.models.hep_cnn.quality import roc_curve, signal_score

# Few distinct scores, so that there are ties; weights over the range of cross sections, and zero.
EVENTS = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(0, 1), st.sampled_from([0.0, 1e-8, 1.0, 3.0])),
    min_size=2,
    max_size=40,
).filter(lambda events: all(any(label == kind and weight for _, label, weight in events) for kind in (0, 1)))


def columns(events):
    return tuple(np.array(column, dtype=float) for column in zip(*events, strict=True))


@given(EVENTS)
def test_auc_is_the_share_of_pairs_in_the_right_order(events):
    scores, labels, weights = columns(events)
    right = total = 0.0
    for score, label, weight in events:
        for other, other_label, other_weight in events:
            if label == 1 and other_label == 0:
                pair = weight * other_weight
                total += pair
                right += pair * (1.0 if score > other else 0.5 if score == other else 0.0)
    assert roc_curve(scores, labels, weights=weights).auc == pytest.approx(right / total, abs=1e-12)


@given(EVENTS, st.sampled_from([0.0, 0.3, 0.5, 0.999, 1 - 1e-9, 1.0]))
def test_signal_efficiency_is_that_of_the_best_allowed_threshold(events, rejection):
    scores, labels, weights = columns(events)
    signal, background = weights * labels, weights * (1 - labels)
    best = 0.0
    for threshold in (*np.unique(scores), np.inf):
        passes = scores >= threshold
        if background[passes].sum() / background.sum() <= (1 - rejection) * (1 + 1e-9):
            best = max(best, signal[passes].sum() / signal.sum())
    curve = roc_curve(scores, labels, weights=weights)
    assert curve.signal_efficiency_at(rejection) == pytest.approx(best, abs=1e-12)


def test_a_rejection_that_was_measured_is_met_in_spite_of_rounding():
    weights = np.array([0.1] * 10 + [1.0] * 3)
    labels = np.array([0] * 10 + [1] * 3)
    scores = np.arange(13.0)[::-1]
    rejection = 1 - np.sum(weights[:3]) / np.sum(weights[:10])  # three events may pass
    assert roc_curve(scores, labels, weights=weights).signal_efficiency_at(rejection) == 0.0
    scores[10:] = 9.5  # below three background events
    assert roc_curve(scores, labels, weights=weights).signal_efficiency_at(rejection) == 1.0


@pytest.mark.parametrize(
    ("scores", "labels", "weights", "message"),
    [
        ([1, 2], [0, 1], [1, -1], "at least 0"),
        ([1, 2], [0, 1], [1, np.inf], "finite"),
        ([1, 2], [0, 1], [0, 1], "no background event with a weight above 0"),
        ([1, 2], [0, 1], [1, 0], "no signal event with a weight above 0"),
        ([1, 2], [1, 1], None, "no background event"),
        ([], [], None, "there are no events"),
        ([1, np.nan], [0, 1], None, "1 of 2 scores are not finite"),
        ([1, 2], [0, 2], None, "labels must be 1"),
        ([1, 2], [0, 1, 1], None, "one shape"),
        ([1, 2], [0, 1], [1], "weights for"),
    ],
)
def test_wrong_events_are_refused(scores, labels, weights, message):
    with pytest.raises(ValueError, match=message):
        roc_curve(scores, labels, weights=weights)


@pytest.mark.parametrize("rejection", [-0.1, 1.1, np.nan])
def test_a_rejection_is_a_share(rejection):
    with pytest.raises(ValueError, match="rejection lies in"):
        roc_curve([1, 2], [0, 1]).signal_efficiency_at(rejection)


def test_scores_keep_apart_what_a_softmax_rounds_to_one():
    logits = np.array([[0, 40], [0, 41]], dtype=np.float32)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert softmax[0, 1] == softmax[1, 1] == 1
    assert signal_score(logits).tolist() == [40, 41]
    with pytest.raises(ValueError, match=r"shape \(N, 2\)"):
        signal_score(logits[:, :1])
