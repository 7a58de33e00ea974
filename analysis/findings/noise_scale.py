"""The gradient noise scale of trainings."""

from __future__ import annotations

from dlscale.benchmarks.records.record import GradientNoise


def gradient_estimates(noise: GradientNoise, *, local_batch: int) -> tuple[float, float]:
    """Unbiased estimates of |G|^2 and tr(Sigma): of the gradient over all data, and of the covariance of one sample's.

    S. McCandlish et al., arXiv:1812.06162, appendix A.1, with batches of b and n b samples. One draw says little, and
    its |G|^2 may be negative: only averages over many are to be divided.
    """
    n, local, mean = noise.num_batches, noise.local_square_norm, noise.mean_square_norm
    return (n * mean - local) / (n - 1), local_batch * (local - mean) * n / (n - 1)
