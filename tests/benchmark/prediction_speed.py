"""Cost of the engines of predictions: 1 to 8192 nodes of Cori by doubling, in CPU seconds, each engine from nothing.

    python tests/benchmark/prediction_speed.py

CPU seconds are those of this process and of SimGrid's, peaks of memory the largest of any process so far.
"""

import resource
import time

from dlscale.analysis.predict.engine import NetworkExchange
from dlscale.analysis.predict.loggp import LogGP
from dlscale.analysis.predict.network import network_of
from dlscale.analysis.predict.simgrid_engine import SimGrid
from dlscale.benchmarks.systems.system import load_system

NODES = [2**power for power in range(14)]
CASES = {
    "ring": {},
    "two_level_ring": {},
    "recursive_doubling": {},
    "halving_doubling": {},
    "tree": {},
    "parameter_servers": {"num_servers": 16},
}
BYTES = 25 * 2**20


def cpu_seconds():
    """Of this process and of those that it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak_mib():
    return (
        max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        / 1024
    )


def main():
    network = network_of(load_system("cori"))
    columns = ("exchange", "placement", "engine", "CPU s", "wall s", "peak MiB", "ms at 8192 nodes")
    print("| " + " | ".join(columns) + " |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    for algorithm, more in CASES.items():
        for placement in ("packed", "scattered"):
            for engine in (LogGP(), SimGrid()):
                begin, start = cpu_seconds(), time.perf_counter()
                for num_nodes in NODES:
                    exchange = NetworkExchange(
                        algorithm=algorithm, num_nodes=num_nodes, placement=placement, **more
                    )
                    (seconds,) = engine.exchange_seconds(network, exchange, [BYTES])
                cost, wall = cpu_seconds() - begin, time.perf_counter() - start
                name = algorithm.replace("_", " ") + (f", {more['num_servers']} servers" if more else "")
                print(
                    f"| {name} | {placement} | {engine.name} | {cost:.2f} | {wall:.1f} | {peak_mib():.0f} | "
                    f"{1e3 * seconds:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
