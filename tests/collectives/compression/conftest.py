"""Ranks of one process whose messages meet."""

import threading

import numpy as np
import pytest

from dlscale.collectives.compression.halves import from_halves, to_halves


class Ranks:
    """Averages buckets over as many ranks as there are buckets, each a thread."""

    def __init__(self, num_ranks):
        self.num_ranks = num_ranks
        self.states = [{} for _ in range(num_ranks)]
        self.num_bytes = [0.0] * num_ranks
        self._barrier = threading.Barrier(num_ranks, timeout=20)
        self._table = [None] * num_ranks

    def average(self, compressor, buckets):
        """The mean that all ranks have; it must be the same bits on all of them."""
        results = [bucket.copy() for bucket in buckets]
        failures = []

        def run(rank):
            try:
                compressor.average(results[rank], self.states[rank], _Meeting(self, rank))
            except BaseException as error:
                failures.append(error)
                self._barrier.abort()

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.num_ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        assert len({result.tobytes() for result in results}) == 1
        return results[0]

    def exchange(self, rank, value):
        self._table[rank] = value
        self._barrier.wait()
        table = list(self._table)
        self._barrier.wait()
        return table


class _Meeting:
    def __init__(self, ranks, rank):
        self._ranks, self._rank = ranks, rank
        self.rank, self.size = rank, ranks.num_ranks

    def allgather_bytes(self, message):
        self._ranks.num_bytes[self._rank] += (self.size - 1) * message.nbytes
        return self._ranks.exchange(self._rank, message.copy())

    def average_halves(self, values):
        total = np.zeros(values.size, np.float32)
        for own in self._ranks.exchange(self._rank, values.copy()):
            total += from_halves(own)
        total /= self.size
        values[:] = to_halves(total, values.dtype)


@pytest.fixture
def ranks():
    return Ranks


@pytest.fixture
def gradients():
    def make(count, rank=0, step=0):
        """Of many magnitudes, as gradients are."""
        generator = np.random.default_rng([count, rank, step])
        scale = np.exp(generator.standard_normal(count))
        return (scale * generator.standard_normal(count)).astype(np.float32)

    return make
