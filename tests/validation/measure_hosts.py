"""Trainings and exchanges between emulated hosts, which predictions are held to (make validate-emulated; needs root).

    python -m tests.validation.measure_hosts [--launches 1] [--results build/emulated] [--emulation link_rate=100Mb/s]

Two workloads over five backends on 1, 2, 4 and 8 hosts with sleep in the place of computation, so that links decide;
their exchanges alone, and their profiles; a model of 4 MiB over parameter servers that nothing else keeps busy; and
allreduces of two sizes. Launches that are done are not repeated when it is started again. Writes
results/reference/emulated.json, which `make validate-prediction` reads.
"""

import argparse
import datetime
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.records.message_sizes import latest_run, load_run
from tests.validation.measured_hosts import FILE, measured_hosts

SYSTEM = "emulated-16"  # 8 workers and 4 servers are 12 hosts
DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")
OK = (0, 2)  # failed cases are results, too
SIZES, BUDGET = "1MiB,4MiB", "6min"  # of the allreduces
COLLECTIVES = ("ring", "mpi", "gloo", "horovod")
RUNS = "collectives/*/launches/*.json"

STUDY = """
name = "{name}"
title = "{name}"
scaling_mode = "weak"
workloads = ["{workload}"]
frameworks = ["torch"]
backends = {backends}
servers = {servers}
nodes = {nodes}
base = "smallest"
precision = "fp32"
controls = {controls}
launches = {launches}
repeats = 0
[backend_options]
{options}
[rules]
warmup_steps = {warm_up}
min_windows = {windows}
min_steps = {windows}
min_window_seconds = 0.01
"""

# 4 MiB of weights in one tensor, and next to nothing to compute.
MODEL = """
import numpy as np
import torch

local_batch = 2


def model():
    return torch.nn.Linear(1024, 1024, bias=False)


loss = torch.nn.MSELoss()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=1e-3)


def data():
    return np.ones((64, 1024), np.float32), np.ones((64, 1024), np.float32)
"""


# A rank that sleeps has a core for threads, which a profile's node is not taken to have.
NOT_OVERLAPPED = "ring.teams = 0\nmpi.teams = 0"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A study, with how many records it will have."""

    name: str
    workload: str
    sleep: str
    backends: list[str]
    nodes: list[int]
    options: list[str] = field(default_factory=list)  # of dlscale run
    servers: list[str] = field(default_factory=lambda: ["1/2"])
    controls: list[str] = field(default_factory=list)
    backend_options: str = ""
    warm_up: int = 2
    windows: int = 8

    def study(self, launches: int) -> str:
        fields = {name: getattr(self, name) for name in ("name", "backends", "servers", "nodes", "controls")}
        text = STUDY.format(
            **fields,
            workload=self.workload,
            launches=launches,
            options=self.backend_options,
            warm_up=self.warm_up,
            windows=self.windows,
        )
        return text.replace("'", '"')

    def num_records(self, launches: int) -> int:
        return launches * len(self.backends) * len(self.nodes) * (1 + len(self.controls))


def parts(model: Path) -> list[Part]:
    """In the order in which they run."""
    found = []
    for name, preset, sleep, windows in (
        ("hep_cnn", "paper", "20ms,40ms", 10),
        ("cosmogan", "small", "40ms,80ms", 6),
    ):
        own = {"workload": name, "sleep": sleep, "options": ["--preset", preset, "--batch", "2"]}
        found += [
            Part(name=f"{name}-profile", backends=["none"], nodes=[1], controls=["profile"], **own),
            Part(name=f"{name}-alone", backends=["none"], nodes=[2, 4, 8], windows=windows, **own),
            Part(
                name=f"{name}-collectives",
                backends=list(COLLECTIVES),
                nodes=[2, 4, 8],
                controls=["exchange"],
                backend_options=NOT_OVERLAPPED,
                windows=windows,
                **own,
            ),
            Part(name=f"{name}-servers", backends=["grpc_ps"], nodes=[1, 2, 4, 8], windows=windows, **own),
        ]
    own = {"workload": str(model), "sleep": "0ms,0ms"}
    whole = "grpc_ps.chunk_kib = 4096"
    servers = [
        Part(name="4-mib-profile", backends=["none"], nodes=[1], controls=["profile"], **own),
        Part(
            name="4-mib-whole",
            backends=["grpc_ps"],
            servers=["1"],
            nodes=[2, 4, 8],
            backend_options=whole,
            windows=6,
            **own,
        ),
        Part(
            name="4-mib-4-servers",
            backends=["grpc_ps"],
            servers=["4"],
            nodes=[4, 8],
            backend_options=whole,
            windows=6,
            **own,
        ),
        Part(name="4-mib-chunks", backends=["grpc_ps"], servers=["1"], nodes=[2, 4, 8], windows=6, **own),
    ]
    return [*found[:4], *servers, *found[4:]]


def run(command: list[str], log: Path, *, count, progress: Progress, task) -> None:
    """Run dlscale, whose output goes to the log, and move the bar by what `count` finds. Exits where it fails."""
    done = progress.tasks[task].completed
    with log.open("a", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            while process.poll() is None:
                progress.update(task, completed=done + count())
                time.sleep(1)
        except KeyboardInterrupt:
            process.wait()
            sys.exit(130)
    progress.update(task, completed=done + count())
    if process.returncode not in OK:
        tail = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
        sys.exit(
            f"make validate-emulated: {' '.join(tail) or f'status {process.returncode}'} ({log} has all of it)"
        )


def study_words(part: Part, study: Path, results: Path, links: list[str]) -> list[str]:
    """The words behind `dlscale` that run a part, whose study is in a file."""
    words = ["run", str(study), "--system", SYSTEM, "--results", str(results), *links]
    words += ["--set", f"compute=sleep:{part.sleep}", *part.options]
    return words + (["--data", "synthetic"] if part.options else [])


def allreduces_words(results: Path, launches: int) -> list[str]:
    """The words behind `dlscale` that measure allreduces of two sizes."""
    words = ["collectives", "--system", SYSTEM, "--nodes", "2,4,8", "--sizes", SIZES]
    words += ["--backends", ",".join(COLLECTIVES), "--launches", str(launches), "--budget", BUDGET]
    return [*words, "--allow-open-ports", "yes", "--results", str(results)]


def allreduces(results: Path, launches: int, log: Path, *, progress: Progress, task) -> None:
    """The run of dlscale collectives, unless there is one."""
    if list(results.glob(RUNS)):
        return
    progress.update(task, description="allreduces")
    words = [DLSCALE, *allreduces_words(results, launches)]
    run(words, log, count=lambda: len(list(results.glob(RUNS))), progress=progress, task=task)


def main() -> None:
    """Run all studies, then write the file of what they measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path("build/emulated"))
    parser.add_argument("--emulation", help="links other than those of the system's file")
    parser.add_argument("--out", type=Path, default=FILE)
    asked = parser.parse_args()
    results = asked.results.absolute()
    results.mkdir(parents=True, exist_ok=True)
    model = results / "four_mib.py"
    model.write_text(MODEL, encoding="utf-8")
    links = ["--set", f"emulation={asked.emulation}"] if asked.emulation else []
    log, folders = results / "log.txt", []
    planned = parts(model)
    num_runs = asked.launches * len(COLLECTIVES) * 3
    total = sum(part.num_records(asked.launches) for part in planned) + num_runs
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total} records"),
    ]
    with Progress(*columns, TimeElapsedColumn(), refresh_per_second=1) as progress:
        task = progress.add_task("", total=total)
        for part in planned:
            if part.workload == "cosmogan" and not links:  # which takes longest, and may be left out
                allreduces(results, asked.launches, log, progress=progress, task=task)
            progress.update(task, description=part.name)
            study = results / f"{part.name}.toml"
            study.write_text(part.study(asked.launches), encoding="utf-8")
            words = [DLSCALE, *study_words(part, study, results, links)]
            pattern = f"{SYSTEM}/{part.name}-*/records/*.json"
            run(words, log, count=lambda p=pattern: len(list(results.glob(p))), progress=progress, task=task)
            folders += {path.parent.parent for path in results.glob(pattern)}
    try:
        runs = load_run(latest_run(results))[1] if list(results.glob(RUNS)) else []
        studies = [load_records(folder)[0] for folder in sorted(folders)]
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        content = measured_hosts(studies, runs, date=today).model_dump_json(indent=1) + "\n"
        write_atomically(asked.out, content, mode=0o644)
    except UsageError as error:
        sys.exit(f"make validate-emulated: {error}")
    sys.stdout.write(f"written: {asked.out}\n")


if __name__ == "__main__":
    main()
