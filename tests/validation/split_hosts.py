"""Trainings that share samples between emulated hosts, beside their predictions (needs root; some minutes).

    python -m tests.validation.split_hosts [--results build/split-hosts] [--launches 1] [--only hep_cnn-2Mb/s]

Networks compute here: `compute=sleep` has no rows. So links are slow, and messages longer than what a link lets
through at once; on two hosts each rank has a core, on four two ranks share one. Computing is as control `profile`
measured it on one host, whole and with a part of the rows; nothing is fitted to the trainings. Launches that are done
are not repeated. Writes the table to standard output (docs/measurements/emulated.md has one).
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dlscale.analysis.launches import launches_of
from dlscale.analysis.predict.network import network_of
from dlscale.analysis.predict.prediction import PredictedPoint, predict_point
from dlscale.analysis.predict.scenario import scenario_of
from dlscale.analysis.render.markdown import markdown_table
from dlscale.benchmarks.cli.profiles import profiles_of
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.systems.emulation import with_emulation
from dlscale.benchmarks.systems.system import load_system

SYSTEM = "emulated-4"
DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")
BACKENDS = ("ring", "gloo", "mpi")
PAYLOAD = 1448 / 1514  # of what a link lets through: Ethernet's, IP's and TCP's headers are the rest
NUM_REPLICATES = 500

STUDY = """
name = "{name}"
title = "{name}"
scaling_mode = "strong"
preset = "tiny"
workloads = ["{workload}"]
frameworks = ["torch"]
batch = {batch}
backends = {backends}
nodes = {nodes}
split = {splits}
precision = "fp32"
controls = {controls}
launches = {launches}
repeats = 0
[rules]
warmup_steps = 3
max_warmup_steps = 3
min_windows = 6
min_steps = 12
min_window_seconds = 0.01
"""


@dataclass(frozen=True, kw_only=True)
class Network:
    """A workload and its batch: halos of some 10 KiB to 100 KiB, that take longer than computing."""

    workload: str
    batch: int
    rates: tuple[str, ...]  # of links
    splits: tuple[int, ...]


NETWORKS = (
    Network(workload="hep_cnn", batch=32, rates=("2Mb/s",), splits=(1, 2, 4)),
    Network(workload="cosmogan", batch=32, rates=("5Mb/s",), splits=(1, 2)),
)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One study on hosts with links of one rate; without a rate the profiles, on one host."""

    network: Network
    rate: str = ""

    @property
    def name(self) -> str:
        return f"{self.network.workload}-{self.rate.removesuffix('/s') or 'profiles'}"

    def run(self, results: Path, launches: int) -> Path:
        """Run what is not there yet; returns the study's folder. Profiles that are there stay, whatever the code is."""
        own = self.network
        if not self.rate and (known := sorted((results / SYSTEM).glob(f"{self.name}-*"))):
            return known[-1]
        study = results / f"{self.name}.toml"
        fields = {"nodes": [2, 4], "backends": list(BACKENDS), "controls": [], "splits": list(own.splits)}
        if not self.rate:  # a launch of one rank for each split, on two hosts of which one computes
            fields |= {"nodes": [1, *own.splits[1:]], "backends": ["none"], "controls": ["alone", "profile"]}
        text = STUDY.format(
            name=self.name, workload=own.workload, batch=own.batch, launches=launches, **fields
        )
        study.write_text(text.replace("'", '"'), encoding="utf-8")
        words = [DLSCALE, "run", str(study), "--system", SYSTEM, "--results", str(results)]
        words += ["--data", "synthetic", "--set", "figures=no"]
        words += ["--set", f"emulation=link_rate={self.rate}"] if self.rate else []
        with (results / f"{self.name}.log").open("a", encoding="utf-8") as log:
            code = subprocess.run(words, stdout=log, stderr=log, check=False).returncode
        folders = sorted((results / SYSTEM).glob(f"{self.name}-*"))
        if code not in (0, 2) or not folders:
            sys.exit(f"{self.name} ended with status {code}; {results / self.name}.log says why")
        return folders[-1]


def compared(part: Part, folder: Path, profiles: Path) -> Iterator[tuple[Cell, float, PredictedPoint]]:
    """Each training, its seconds per step (the median over launches of each one's median), and its prediction."""
    system = with_emulation(load_system(SYSTEM), f"link_rate={part.rate}")
    (profile,) = profiles_of(system, part.network.workload, profiles, frameworks=["torch"], preset="tiny")
    for launches in launches_of(load_records(folder)[0]):
        cell = launches.cell
        if cell.control != "train" or not launches.good:
            continue
        scenario = scenario_of(
            system,
            profile,
            cell.backend,
            scaling_mode="strong",
            backend_options={},
            batch=cell.batch,
            split=cell.split,
        )
        network = network_of(system)
        network = replace(network, node_bytes_per_second=PAYLOAD * network.node_bytes_per_second)
        scenario = replace(scenario, network=network, num_replicates=NUM_REPLICATES)
        measured = float(np.median([np.median(case.seconds) for case in launches.good]))
        yield cell, measured, predict_point(scenario, cell.num_nodes)


def table(parts: list[Part], results: Path, launches: int) -> Iterator[str]:
    """Markdown: each training beside its prediction, and how far they are off."""
    found: dict[tuple[str, str, int, int], dict[str, tuple[float, PredictedPoint]]] = {}
    for part in parts:
        profiles = Part(network=part.network).run(results, launches)
        for cell, measured, point in compared(part, part.run(results, launches), profiles):
            key = (cell.workload.replace("_", " "), part.rate, cell.num_nodes, cell.split)
            found.setdefault(key, {})[cell.backend] = measured, point
    rows, errors = [], {}
    for (workload, rate, num_nodes, split), own in sorted(found.items()):
        (_, point), *_ = own.values()
        step, texts = point.step_seconds.center, []
        for backend in BACKENDS:
            if backend not in own:
                texts.append("")
                continue
            measured, other = own[backend]
            error = other.step_seconds.center / measured - 1
            errors.setdefault(split, []).append(abs(error))
            texts.append(f"{1e3 * measured:.0f} ({100 * error:+.1f} %)")
        halos = 1e3 * step * point.parts.get("halo exchange", 0.0)
        rows.append([workload, rate, str(num_nodes), str(split), f"{1e3 * step:.0f}", f"{halos:.0f}", *texts])
    columns = ["workload", "links", "hosts", "split", "predicted ms", "of which halos", *BACKENDS]
    yield from markdown_table(columns, rows, words=columns[:2])
    yield ""
    for split, own in sorted(errors.items()):
        yield (
            f"Split {split}: {len(own)} steps, half within {100 * float(np.median(own)):.1f} %, the worst "
            f"{100 * max(own):.1f} % off."
        )


def main() -> None:
    """Run the studies, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("build/split-hosts"))
    parser.add_argument("--launches", type=int, default=1)
    parser.add_argument("--only", help="one part, e.g. hep_cnn-2Mb")
    asked = parser.parse_args()
    asked.results.mkdir(parents=True, exist_ok=True)
    parts = [Part(network=network, rate=rate) for network in NETWORKS for rate in network.rates]
    chosen = [part for part in parts if asked.only in (None, part.name)]
    sys.stdout.write("\n".join(table(chosen, asked.results.absolute(), asked.launches)) + "\n")


if __name__ == "__main__":
    main()
