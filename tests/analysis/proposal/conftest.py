"""Studies whose ranks keep a known share of the ideal speed."""

import pytest

from dlscale.analysis.measured import measure
from dlscale.analysis.proposal.sizes import curves

BATCH = 32  # over all ranks, of strong scaling
RATE = 100  # samples/s of 1 rank without a communication layer
DRIFT = (1.0, 0.8, 1.1, 0.9, 1.2, 0.95, 1.05, 0.85)


@pytest.fixture
def kept(make_record):
    """Records: backend -> {ranks: share of the ideal speed}; `wobble` of each launch, the same sign on no two ranks."""

    def make(shares, *, num_blocks=6, wobble=0.0, nodes=None, **fields):
        return [
            make_record(
                backend=backend,
                num_ranks=num_ranks,
                block=block,
                samples_per_second=RATE
                * num_ranks
                * share
                * DRIFT[block % len(DRIFT)]
                * (1 + wobble * (-1) ** (block + num_ranks.bit_length())),
                num_nodes=(nodes or {}).get(num_ranks, 1),
                local_batch=BATCH // num_ranks if fields.get("scaling_mode") == "strong" else 8,
                **fields,
            )
            for block in range(num_blocks)
            for backend, by_ranks in shares.items()
            for num_ranks, share in by_ranks.items()
        ]

    return make


@pytest.fixture
def curve_of():
    """The one curve that a proposal shows of records."""

    def one(records, *, threshold=0.75, **options):
        (found,) = curves(measure(records), threshold=threshold, **options)
        return found

    return one
