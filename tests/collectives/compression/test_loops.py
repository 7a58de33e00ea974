"""The loops in C++ give the same bits as those in NumPy."""

import numpy as np
import pytest

from dlscale.collectives.compression import native

COUNTS = [0, 1, 15, 16, 17, 100, 40_003]

pytestmark = pytest.mark.skipif(native.kind() == "numpy", reason="not built: no C++ compiler")


@pytest.fixture
def both(monkeypatch):
    """Calls a function with copies of the arrays, native and in NumPy; gives all arrays afterwards and the results."""

    def run(function, *arguments):
        results = []
        for library in (native._library(), None):
            monkeypatch.setattr(native, "_library", lambda library=library: library)
            own = [
                argument.copy() if isinstance(argument, np.ndarray) else argument for argument in arguments
            ]
            with np.errstate(invalid="ignore"):
                result = function(*own)
            results.append([result, *(one for one in own if isinstance(one, np.ndarray))])
            monkeypatch.undo()
        for ours, numpys in zip(*results, strict=True):
            np.testing.assert_array_equal(ours, numpys)
        return results[0]

    return run


def values(gradients, count):
    made = gradients(count)
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, 7e4, -7e4, 65519.9, 3.4e38]
    made[: len(special)] = special[:count]
    return made


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("limit", [0.0, 0.5, 1e9])
def test_move(both, gradients, count, limit):
    bucket, residual = values(gradients, count), gradients(count, rank=1)
    places, moved, _ = both(native.move, bucket, residual, np.float32(limit))
    assert (np.diff(places.astype(np.int64)) > 0).all()
    assert not moved.any()


@pytest.mark.parametrize("count", COUNTS)
def test_signs(both, gradients, count):
    residual = values(gradients, count)
    places = np.flatnonzero(~(np.abs(residual) <= 0.5)).astype(np.uint32)
    finite, _, words = both(native.take_signs, residual, places, np.float32(0.5))
    assert finite == (count < 3)
    both(native.add_signs, words, np.float32(0.25), gradients(count, rank=1))


@pytest.mark.parametrize("count", COUNTS)
def test_halves(both, gradients, count):
    bucket, residual = values(gradients, count), gradients(count, rank=1)
    for round_, widen, *largest in (
        (native.round_bfloat16, native.widen_bfloat16),
        (native.round_float16, native.widen_float16, 32752.0),
    ):

        def rounded(bucket, residual, round_=round_, largest=largest):
            return round_(bucket, residual, *largest)

        halves = rounded(bucket.copy(), residual.copy())
        # The bucket's content afterwards is of no use.
        both(lambda own, bucket=bucket, rounded=rounded: rounded(bucket.copy(), own), residual)
        both(widen, halves, np.empty(count, np.float32))
