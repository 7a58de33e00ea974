"""Top-k against sorting, and Wilson's interval against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.models.quality.top1 import accuracy, num_correct, top_k


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from([np.float32, np.float64]))
def test_a_label_is_among_the_first_of_a_stable_sort(seed, k, dtype):
    rng = np.random.default_rng(seed)
    logits = rng.integers(-2, 3, size=(30, 6)).astype(dtype)  # with ties
    labels = rng.integers(6, size=30)
    ranked = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    expected = sum(label in row for label, row in zip(labels, ranked, strict=True))
    assert num_correct(logits, labels, k=k) == expected
    if k == 1:
        assert expected == np.sum(np.argmax(logits, axis=1) == labels)


def test_a_network_without_a_preference_is_right_by_chance():
    labels = np.repeat(np.arange(10), 7)
    assert num_correct(np.zeros((70, 10)), labels) == 7
    assert num_correct(np.zeros((70, 10)), labels, k=5) == 35
    assert num_correct(np.zeros((70, 10)), labels, k=10) == 70


def test_accuracy_of_batches_is_that_of_all():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(100, 10)), rng.integers(10, size=100)
    parts = sum(num_correct(logits[i : i + 32], labels[i : i + 32], k=5) for i in range(0, 100, 32))
    assert accuracy(parts, 100) == top_k(logits, labels, k=5)


@pytest.mark.parametrize(("right", "of"), [(0, 10), (1, 10), (7, 10), (10, 10), (7610, 10_000), (1, 1)])
def test_the_limits_are_where_the_score_test_just_rejects(right, of):
    result = accuracy(right, of)
    z = 1.959963984540054
    for limit, end in ((result.low, 0.0), (result.high, 1.0)):
        if limit != end:
            assert abs(right / of - limit) == pytest.approx(z * math.sqrt(limit * (1 - limit) / of))
    assert 0 <= result.low <= result.value <= result.high <= 1
    assert result.low < result.high
    assert (result.low == 0) == (right == 0)
    assert (result.high == 1) == (right == of)


def test_the_sentence():
    assert accuracy(5, 10).sentence() == "50.00% correct (5 of 10), 95% interval [23.66%, 76.34%]"


@pytest.mark.parametrize(
    ("logits", "labels", "k", "message"),
    [
        (np.zeros((2, 3)), np.array([0, 3]), 1, "from 0 to 2"),
        (np.zeros((2, 3)), np.array([0, -1]), 1, "from 0 to 2"),
        (np.zeros((2, 3)), np.array([0.0, 1.0]), 1, "whole numbers"),
        (np.zeros((2, 3)), np.array([0]), 1, "need logits"),
        (np.zeros(3), np.array([0]), 1, "need logits"),
        (np.zeros((2, 3)), np.array([0, 1]), 4, "top-4 of 3 classes"),
        (np.zeros((2, 3)), np.array([0, 1]), 0, "top-0"),
        (np.array([[0, np.nan]]), np.array([0]), 1, "NaN"),
    ],
)
def test_wrong_arrays_are_refused(logits, labels, k, message):
    with pytest.raises(ValueError, match=message):
        num_correct(logits, labels, k=k)


@pytest.mark.parametrize(("right", "of"), [(0, 0), (3, 2), (-1, 2)])
def test_impossible_counts_are_refused(right, of):
    with pytest.raises(ValueError, match="samples correct"):
        accuracy(right, of)
