"""The textbook in one figure: servers take longer with every worker, rings and doublings hardly do.

    python -m tests.validation.exchange_figure --out docs/figures                        (seconds; a figure and a CSV)
    python -m tests.validation.exchange_figure --out docs/figures --measured results/reference/emulated.json

Lines are closed forms, half filled markers predictions. Measured points are those of that file (make
validate-emulated): allreduces of --bytes, and steps of the model of 4 MiB over servers, which next to nothing but the
exchange takes time in. They must be of the network that --rate and --latency say.
"""

import argparse
import csv
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt

from dlscale.analysis.predict.exchange import NetworkExchange, cost
from dlscale.analysis.predict.network import Network
from tests.validation.exchanges import closed_form_seconds
from tests.validation.measured_hosts import load_measured

NODES = [2**power for power in range(1, 8)]
EXCHANGES = {
    "1 parameter server": ("parameter_servers", 1, "#D55E00", "-"),
    "4 parameter servers": ("parameter_servers", 4, "#CC79A7", "--"),
    "ring": ("ring", 0, "#0072B2", "-."),
    "halving and doubling": ("halving_doubling", 0, "#009E73", ":"),
}
CARRIED_BY = {"ring": "ring", "mpi": "halving and doubling"}
SERVED = "four_mib"  # the workload of 4 MiB
MARKERS = {"predicted": ("left", "o"), "measured": ("full", "D")}
LABELS = {"predicted": "predicted (simulated)", "measured": "measured on emulated hosts"}


def rows(network, num_bytes):
    """Two per exchange and number of nodes: closed form and prediction."""
    for title, (algorithm, num_servers, *_) in EXCHANGES.items():
        for num_nodes in NODES:
            exchange = NetworkExchange(algorithm=algorithm, num_nodes=num_nodes, num_servers=num_servers)
            yield title, num_nodes, "closed form", closed_form_seconds(network, exchange, num_bytes)
            yield title, num_nodes, "predicted", cost(network, exchange).of(num_bytes)


def measured_rows(path, num_bytes):
    hosts = load_measured(path)
    for bucket in hosts.buckets:
        if bucket.workload is None and bucket.num_bytes == num_bytes and bucket.backend in CARRIED_BY:
            yield CARRIED_BY[bucket.backend], bucket.num_nodes, "measured", bucket.seconds
    for step in hosts.steps:
        whole = step.backend_options.get("chunk_kib") == num_bytes >> 10  # a shard is one message
        if whole and step.workload.startswith(SERVED) and step.seconds:
            title = f"{step.num_servers} parameter server{'s' * (step.num_servers > 1)}"
            yield title, step.num_nodes, "measured", step.center


def draw(found, subtitle, path):
    figure, axis = plt.subplots(figsize=(6.3, 4.2), layout="constrained")
    for title, (_, _, colour, dashes) in EXCHANGES.items():
        for origin in dict.fromkeys(origin for _, _, origin, _ in found):
            own = [
                (nodes, seconds) for name, nodes, what, seconds in found if (name, what) == (title, origin)
            ]
            if not own:
                continue
            if origin == "closed form":
                axis.plot(*zip(*own, strict=True), color=colour, linestyle=dashes, label=title)
            else:
                fill, marker = MARKERS[origin]
                axis.plot(*zip(*own, strict=True), marker, color=colour, fillstyle=fill, markersize=6)
    for origin in dict.fromkeys(origin for _, _, origin, _ in found if origin != "closed form"):
        fill, marker = MARKERS[origin]
        axis.plot([], [], marker, color="black", fillstyle=fill, markersize=6, label=LABELS[origin])
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(NODES, [str(nodes) for nodes in NODES])
    axis.set_xlabel("nodes with workers")
    axis.set_ylabel("seconds of an exchange")
    axis.set_title(subtitle, fontsize=9)
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=150, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--measured", type=Path)
    parser.add_argument(
        "--rate", type=float, default=25e6 * (1 - 0.044), help="bytes per second: 200 Mb/s less headers"
    )
    parser.add_argument("--latency", type=float, default=40e-6, help="seconds")
    parser.add_argument("--bytes", type=int, default=4 * 2**20)
    asked = parser.parse_args()
    network = Network(
        name="one switch",
        num_nodes=2 * NODES[-1],
        node_bytes_per_second=asked.rate,
        latency_seconds=asked.latency,
        node_memory_bytes_per_second=None,
        reduce_seconds_per_byte=0.0,
    )
    found = [
        *rows(network, asked.bytes),
        *(measured_rows(asked.measured, asked.bytes) if asked.measured else ()),
    ]
    subtitle = f"{asked.bytes / 1e6:.3g} MB, {asked.rate / 1e6:.3g} MB/s per node, {1e6 * asked.latency:g} us"
    draw(found, subtitle, asked.out / "exchange-over-nodes.png")
    with (asked.out / "exchange-over-nodes.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["exchange", "num_nodes", "origin", "seconds"])
        writer.writerows((name, nodes, origin, f"{seconds:.6g}") for name, nodes, origin, seconds in found)


if __name__ == "__main__":
    main()
