"""PowerSGD: a matrix M of gradients as P Q^T of rank r, by one step of power iteration from the last one's Q.

Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization",
NeurIPS 2019 (arXiv 1905.13727): P = M Q, its mean over ranks orthogonalised; Q = M^T P, its mean; warm start and error
feedback. The steps are those of torch's `powerSGD_hook` on one matrix. Here a bucket is that matrix, square, with zeros
behind it, as `batched_powerSGD_hook` has it: that knows no layers, costs 2 r sqrt(n) numbers, and loses more than a
matrix per layer would.
"""

from __future__ import annotations

import math

import numpy as np

from dlscale.collectives.compression.compressor import BucketState, Floats, accumulate, residual_of
from dlscale.collectives.compression.links import Links

FACTOR = "factor"  # the last Q, (side, rank), the same on all ranks


class PowerSgd:
    """Two small averages in the place of a large one (`Compressor`)."""

    def __init__(self, rank: int, *, error_feedback: bool) -> None:
        self._rank, self._error_feedback = rank, error_feedback

    def average(self, bucket: Floats, state: BucketState, links: Links) -> None:
        """A bucket too small to gain by it, of at most 2 r sqrt(n) elements, travels as it is."""
        side = math.isqrt(max(bucket.size - 1, 0)) + 1
        rank = self._rank
        if 2 * rank * side >= bucket.size:
            links.average(bucket)
            return
        residual = residual_of(state, bucket, error_feedback=self._error_feedback)
        for _ in accumulate(bucket, residual):
            pass
        padded = np.zeros(side * side, np.float32)
        padded[: bucket.size] = residual
        matrix = padded.reshape(side, side)
        factor = state.get(FACTOR)
        if factor is None or factor.shape != (side, rank):
            factor = np.random.default_rng(0).standard_normal((side, rank), np.float32)
        image = matrix @ np.linalg.qr(factor)[0]
        links.average(image)
        image = np.ascontiguousarray(np.linalg.qr(image)[0])
        factor = np.ascontiguousarray(matrix.T @ image)
        links.average(factor)
        state[FACTOR] = factor
        bucket[:] = (image @ factor.T).reshape(-1)[: bucket.size]
        residual -= bucket  # the ranks' mean, as in torch: over all of them the same is left over
