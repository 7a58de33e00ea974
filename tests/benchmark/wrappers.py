"""Our trainer beside a plain script over the same backend, interleaved in the same processes on 2 ranks.

python tests/benchmark/wrappers.py [--case hep_cnn-torch-gloo ...] [--pairs 20] [--explain] [--out FILE.json]

A case is a launch of its own. Our trainer and the script have the same network, weights, batches, optimizer, group or
servers, one core and one thread per rank; after one step their weights agree, or the case fails. Windows take turns
in the order ABBA, each after a step that is not timed and a barrier; the slowest rank counts. The ratio is of
throughputs, ours over the script's, with the 95 % interval of the mean of its logarithm (Student's t).

| backend | what its users write (plain/*.py) |
| --- | --- |
| gloo | DistributedDataParallel with the options that our backend gives it |
| horovod | the loop of Horovod's synthetic benchmark; in torch channels stay last by flat views of the gradients |
| tf_collective | Strategy.run in a loop of one's own, the optimizer averages |
| grpc_ps (TensorFlow) | SyncReplicasOptimizer, MonitoredTrainingSession and feeds |
| ring | no interface but ours; with --explain its others: the hook, the process group, average_gradients |
| mpi, grpc_ps (torch) | no interface but ours |

--explain adds scripts that say where a difference comes from: updates that see flat views as ours do (decision 0008),
DistributedDataParallel's defaults, channels first, weights fetched once per step.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Hashable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from plain.launch import LaunchError, launch

from dlscale.analysis.statistics import Interval, block_ratio
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.campaign import ALLOCATOR, THREAD_VARIABLES

LIMIT = 0.03  # of the logarithm of the ratio
WORKLOADS = ("hep_cnn", "resnet50")
COMPARED = (
    "torch-gloo",
    "torch-horovod",
    "tensorflow-horovod",
    "tensorflow-tf_collective",
    "tensorflow-grpc_ps",
)
OUR_OWN = ("torch-ring", "tensorflow-ring")  # both sides are ours: for information
CASES = tuple(f"{workload}-{pair}" for workload in WORKLOADS for pair in (*COMPARED, *OUR_OWN))
PACKAGES = ("dlscale", "torch", "tensorflow-cpu", "horovod", "mpi4py", "mpich", "numpy")


def main() -> int:
    arguments = read_arguments()
    results, failures = [], {}
    print(f"{'case':34} {'beside':36} {'ours':>8} {'script':>8}  ms; ratio of throughputs, ours / script")
    for case in arguments.case or default_cases(explain=arguments.explain):
        try:
            found = measured(case, arguments)
        except LaunchError as error:
            failures[case] = str(error)
            print(f"{case:34} failed: {error}", flush=True)
            continue
        results.append(found)
        show(found)
    print("mpi, and grpc_ps in torch, have no interface but ours: there is nothing to put beside them")
    if arguments.out:
        write(arguments, results, failures)
    missed = [found["case"] for found in results if found["verdict"] not in ("inside", "for information")]
    print(
        f"outside +-3 % or undecided: {', '.join(missed) or 'none'}; failed: {', '.join(failures) or 'none'}"
    )
    return 1 if failures else 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=CASES, action="append", help="May be repeated; all without it.")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--window-seconds", type=float, default=0.3)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--explain", action="store_true", help="Measure scripts that explain, too.")
    parser.add_argument("--limit-seconds", type=int, default=300, help="That one case may take.")
    parser.add_argument("--out", type=Path, help="Every pair's seconds, versions and settings, as JSON.")
    return parser.parse_args()


def default_cases(*, explain: bool) -> list[str]:
    return [case for case in CASES if explain or case.partition("-")[2] not in OUR_OWN]


def measured(case: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """A launch's seconds per step of every pair, and a ratio per script."""
    workload, framework, backend = case.split("-")
    with tempfile.TemporaryDirectory() as folder:
        orders = {
            "workload": workload,
            "framework": framework,
            "backend": backend,
            "preset": arguments.preset,
            "pairs": arguments.pairs,
            "window_seconds": arguments.window_seconds,
            "explain": arguments.explain,
            "out": str(Path(folder) / "found.json"),
        }
        found = launch(orders, limit_seconds=arguments.limit_seconds)
    by_pair = {name: blocks(seconds) for name, seconds in found["seconds"].items()}
    ours = by_pair.pop("ours")
    ratios = {name: block_ratio(theirs, ours) for name, theirs in by_pair.items()}
    verdicts = [verdict(ratio) for ratio in ratios.values()]
    own = case.partition("-")[2] in OUR_OWN
    return {
        "case": case,
        "verdict": "for information" if own else verdicts[0],
        "ratios": {name: [ratio.center, ratio.low, ratio.high] for name, ratio in ratios.items()},
        **found,
    }


def blocks(seconds: Sequence[float]) -> dict[Hashable, float]:
    """Pair -> seconds: what drifts from pair to pair cancels in each one's ratio."""
    return dict(enumerate(seconds))


def verdict(ratio: Interval) -> str:
    """Where the whole interval lies."""
    if ratio.low is None or ratio.high is None:
        return "too few pairs"
    low, high = math.log(ratio.low), math.log(ratio.high)
    if low >= -LIMIT and high <= LIMIT:
        return "inside"
    if low > LIMIT:
        return "ours is faster"
    return "ours is slower" if high < -LIMIT else "undecided"


def show(found: dict[str, Any]) -> None:
    medians = {name: 1e3 * statistics.median(seconds) for name, seconds in found["seconds"].items()}
    for index, (name, (center, low, high)) in enumerate(found["ratios"].items()):
        limits = f"[{low:.3f}, {high:.3f}]" if low else "[-, -]"
        said = "for information" if index else found["verdict"]
        print(
            f"{found['case']:34} {name:36} {medians['ours']:8.2f} {medians[name]:8.2f}  "
            f"{center:.3f} {limits}  {said}",
            flush=True,
        )


def write(arguments: argparse.Namespace, results: list[dict[str, Any]], failures: dict[str, str]) -> None:
    """All pairs with what they were taken on and with."""
    installed = {package: version(package) for package in PACKAGES}
    settings = {
        "pairs": arguments.pairs,
        "window_seconds": arguments.window_seconds,
        "preset": arguments.preset,
        "precision": "fp32",
        "num_ranks": 2,
        "threads_per_rank": 1,
        "variables": {**ALLOCATOR, **dict.fromkeys(THREAD_VARIABLES, "1")},
        "limit": LIMIT,
    }
    text = json.dumps(
        {
            "commit": environment.commit(),
            "python": sys.version.split()[0],
            "versions": installed,
            "settings": settings,
            "unit": "seconds per step of the slowest rank, in the order of the pairs",
            "cases": results,
            "failures": failures,
        },
        indent=1,
    )
    arguments.out.write_text(text + "\n", encoding="utf-8")


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


if __name__ == "__main__":
    sys.exit(main())
