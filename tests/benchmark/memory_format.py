"""Why HEP-CNN keeps channels last: training steps in both memory formats, interleaved, on one core.

python tests/benchmark/memory_format.py
"""

import statistics
import time

import torch

from dlscale.benchmarks import affinity
from dlscale.models import load_workload
from dlscale.models.workload import Input, Shard

NUM_PAIRS = 30


def main() -> None:
    affinity.bind(1)
    torch.set_num_threads(1)
    workload = load_workload("hep_cnn")
    for preset in ("small", "paper"):
        local_batch = workload.preset(preset).local_batch if preset == "small" else 1
        factory = workload.factory(
            framework="torch", preset=preset, local_batch=local_batch, precision="fp32", source=Input()
        )
        replica = factory(shard=Shard(), seed=1)
        (objective,) = replica.objectives
        batch = replica.next_batch()
        seconds: dict[torch.memory_format, list[float]] = {
            torch.channels_last: [],
            torch.contiguous_format: [],
        }
        for _ in range(NUM_PAIRS + 3):
            for memory_format, found in seconds.items():
                objective.loss.to(memory_format=memory_format)
                formatted = [x.contiguous(memory_format=memory_format) if x.dim() == 4 else x for x in batch]
                objective.optimizer.zero_grad(set_to_none=True)
                begin = time.perf_counter()
                objective.loss(*formatted).backward()
                found.append(time.perf_counter() - begin)
        last, first = (found[3:] for found in seconds.values())
        ratios = sorted(a / b for a, b in zip(last, first, strict=True))
        print(
            f"{preset}, {local_batch} events: channels last {statistics.median(last) * 1e3:.1f} ms, "
            f"first {statistics.median(first) * 1e3:.1f} ms; ratio {statistics.median(ratios):.2f} "
            f"[{ratios[len(ratios) // 10]:.2f}, {ratios[-len(ratios) // 10]:.2f}] over {NUM_PAIRS} pairs"
        )


if __name__ == "__main__":
    main()
