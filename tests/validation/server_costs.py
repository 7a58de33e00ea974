"""What a parameter server's processor does for one worker in a step (for analysis/predict/costs.toml).

    python -m tests.validation.server_costs --out build/server-costs

A server's CPU seconds per step, for one and two workers over loopback, messages of several sizes and numbers; a line
each. CPU time is what counts, not time that passes, so that two cores are enough for all processes; a busy machine
makes it longer by what its caches lose. The rate is that of the last seconds in which the server worked evenly.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlscale.benchmarks.records.files import load_records

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")
TICK = os.sysconf("SC_CLK_TCK")
BIN_SECONDS = 0.25
HEAD = "backend,framework,workload,workers,messages,bytes,step_ms,server_cpu_ms,busy,most_busy\n"

# Weights in `count` tensors of `width` x 256, and next to nothing to compute.
MODEL = """
import numpy as np
import torch

local_batch = 2


class Weights(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ParameterList([torch.zeros({width}, 256) for _ in range({count})])

    def forward(self, x):
        return x + sum(part[0, 0] for part in self.parts)


def model():
    return Weights()


loss = torch.nn.MSELoss()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=1e-3)


def data():
    return np.ones((64, 4), np.float32), np.ones((64, 4), np.float32)
"""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A training over one server: its workload, and how many messages of how many bytes a worker sends per step."""

    backend: str
    framework: str
    workload: str
    num_messages: int
    num_bytes: int
    options: tuple[str, ...] = ()


def kinds(folder: Path) -> list[Kind]:
    """Own models in torch, the networks with most and fewest variables in TensorFlow."""
    found = []
    for mib in (1, 16):
        path = folder / f"weights_{mib}.py"
        path.write_text(MODEL.format(width=1024, count=mib), encoding="utf-8")
        own = {"framework": "torch", "workload": str(path), "num_bytes": mib << 20}
        found.append(Kind(backend="mpi_ps", num_messages=1, **own))
        found.append(Kind(backend="grpc_ps", num_messages=mib, **own))
        few = (f"grpc_ps.chunk_kib={16 * mib}",)
        found.append(Kind(backend="grpc_ps", num_messages=64, options=few, **own))
    for workload, preset, count, size in (
        ("resnet50", "tiny", 161, 0),
        ("hep_cnn", "tiny", 14, 0),
        ("hep_cnn", "small", 14, 0),
    ):
        options = ("preset=" + preset,)
        found.append(
            Kind(
                backend="grpc_ps",
                framework="tensorflow",
                workload=workload,
                num_messages=count,
                num_bytes=size,
                options=options,
            )
        )
    return found


def command(kind: Kind, num_workers: int, results: Path) -> list[str]:
    words = [DLSCALE, "run", "weak-scaling", "--workloads", kind.workload, "--frameworks", kind.framework]
    words += [
        "--backends",
        kind.backend,
        "--ranks",
        str(num_workers),
        "--launches",
        "1",
        "--results",
        str(results),
    ]
    words += ["--data", "synthetic", "--set", "base=smallest", "--set", "repeats=0"]
    words += ["--batch", "2", "--set", "rules.min_windows=10", "--set", "rules.min_window_seconds=0.25"]
    words += ["--set", "rules.max_steps=100000", "--set", "servers=1"]
    for option in kind.options:
        words += ["--preset", option[7:]] if option.startswith("preset=") else ["--set", option]
    return words


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def children(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in path.read_text().split()]
        except OSError:
            continue
    return found + [below for child in found for below in children(child)]


def rank_of(pid: int) -> str:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((text[9:].decode() for text in variables if text.startswith(b"PMI_RANK=")), "")


def measure(kind: Kind, num_workers: int, results: Path) -> str:
    with (results / "log.txt").open("a", encoding="utf-8") as log:
        process = subprocess.Popen(command(kind, num_workers, results), stdout=log, stderr=log)
        samples: list[tuple[float, float]] = []
        server = None
        while process.poll() is None:
            time.sleep(0.02)
            try:
                if server is None:
                    ranks = [pid for pid in children(process.pid) if rank_of(pid) == str(num_workers)]
                    server = ranks[-1] if ranks else None
                else:
                    samples.append((time.monotonic(), cpu_seconds(server)))
            except (OSError, IndexError):
                continue
    (folder,) = [path for path in results.glob("local/*") if path.is_dir() and not (path / "seen").exists()]
    (folder / "seen").touch()
    records, _ = load_records(folder)
    (record,) = [record for record in records if record.good and record.case.cell.backend == kind.backend]
    windows = [window for window in record.windows if window.phase == "steady"]
    step = float(np.median([max(window.seconds) / window.num_steps for window in windows]))
    length = sum(max(window.seconds) for window in windows)
    times, used = np.array(samples).T
    bins = np.arange(times[0], times[-1], BIN_SECONDS)
    rates = np.diff(np.interp(bins, times, used)) / BIN_SECONDS
    working = rates[-int(length / BIN_SECONDS) - 3 : -3]
    rate = float(np.mean(working))
    num_bytes = kind.num_bytes or 4 * record.case.cell.preset_facts.num_parameters
    name = Path(kind.workload).stem + "".join(f" {option}" for option in kind.options)
    return (
        f"{kind.backend},{kind.framework},{name},{num_workers},{kind.num_messages},{num_bytes},"
        f"{1e3 * step:.4f},{1e3 * rate * step:.4f},{rate:.2f},{float(np.max(working)):.2f}"
    )


def main() -> None:
    """Measure all kinds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--workers", default="1,2")
    asked = parser.parse_args()
    results = asked.out.absolute()
    results.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(HEAD)
    for kind in kinds(results):
        for count in map(int, asked.workers.split(",")):
            if asked.only in f"{kind.backend} {kind.framework} {kind.workload} {kind.options}":
                sys.stdout.write(f"{measure(kind, count, results)}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
