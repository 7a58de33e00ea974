"""What compressing a bucket costs, in copies of it: in one process on one core, by turns; not a test.

    taskset -c 0 python tests/benchmark/compression.py

`make`: gradients and residual become a message and the new residual. `read`: a rank's message is added to the mean.
Printed are the least over rounds, in milliseconds and in plain copies of the bucket between two arrays that are there.
The goals are for `make`: top-k of 1 % at most six copies, threshold and bf16 at most two.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from dlscale.base.quantities import parse_sizes
from dlscale.collectives.compression import native
from dlscale.collectives.compression.onebit import OneBit
from dlscale.collectives.compression.qsgd import Qsgd
from dlscale.collectives.compression.threshold import Threshold
from dlscale.collectives.compression.topk import TopK

SHARE = 0.01  # of elements that top-k and threshold send
GOALS = {"topk": 6, "threshold": 2, "bf16": 2}


def main() -> None:
    """Every compressor in every round; the first round is not counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="25MiB")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    (size,) = parse_sizes(arguments.size)
    count = size // 4
    random = np.random.default_rng(0)
    gradients = (np.exp(random.standard_normal(count)) * random.standard_normal(count)).astype(np.float32)
    tau = np.partition(np.abs(gradients), int((1 - SHARE) * count))[int((1 - SHARE) * count)]
    codecs = {
        "topk": TopK(SHARE),
        "threshold": Threshold(float(tau)),
        "onebit": OneBit(),
        "qsgd": Qsgd(7),
    }
    bucket, residual, target = (np.zeros_like(gradients) for _ in range(3))
    state = {"rank": np.zeros(1, np.int64)}
    messages = {}
    seconds: dict[tuple[str, str], list[float]] = {}

    def timed(name: str, part: str, function: Callable[[], object]) -> None:
        begin = time.perf_counter()
        messages[name] = function()
        seconds.setdefault((name, part), []).append(time.perf_counter() - begin)

    for _ in range(arguments.rounds + 1):
        timed("copy", "make", lambda: np.copyto(target, gradients))
        for name, codec in codecs.items():
            bucket[:], residual[:] = gradients, 0
            timed(name, "make", lambda codec=codec: codec.encode(bucket, residual, state))
            message = messages[name]
            timed(name, "read", lambda codec=codec, m=message: codec.add(m, bucket, np.float32(0.5)))
        for name, make, read in (
            ("bf16", lambda: native.round_bfloat16(bucket, residual), native.widen_bfloat16),
            ("fp16", lambda: native.round_float16(bucket, residual, 6e4), native.widen_float16),
        ):
            bucket[:], residual[:] = gradients, 0
            timed(name, "make", make)
            message = messages[name]
            timed(name, "read", lambda read=read, m=message: read(m, bucket))
    copy = min(seconds["copy", "make"][1:])
    print(f"{arguments.size}, loops: {native.kind()}; a copy takes {1e3 * copy:.2f} ms")
    for (name, part), found in seconds.items():
        if name != "copy":
            least = min(found[1:])
            goal = f"   goal: {GOALS[name]}" if part == "make" and name in GOALS else ""
            print(f"{name:10} {part}  {1e3 * least:7.2f} ms  {least / copy:5.1f} copies{goal}")


if __name__ == "__main__":
    main()
