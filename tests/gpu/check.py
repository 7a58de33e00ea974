"""Everything about GPUs that only a machine with GPUs can say: `make gpu-check`.

For each framework that sees GPUs: doctor; the tests beside this file; the contract of the backends that train on GPUs,
on 1 .. #GPUs ranks, and of torch's through host memory on 2 and 3 ranks that share the GPU where there is only one; a
tiny study; in torch NCCL's operations over message sizes, where there are several GPUs. All of it is tried, and what
failed is listed; ends with 1 then, or where there is no GPU.

check.py [FOLDER]     outputs of ranks and records of studies are kept in FOLDER (one of their own)
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from dlscale.base import launchers
from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.gpus import ask
from dlscale.benchmarks.systems.system import GPU_BACKEND, default_environment, find_installation, load_system
from dlscale.collectives import NAMES, capabilities
from dlscale.models.frameworks import FRAMEWORKS, GPU_HELP

TOP = Path(__file__).parents[2]
LIMIT_SECONDS = 900
CASE_SECONDS = 12  # of the study: its windows are short
# Ranks that share a GPU are refused by NCCL, and by studies; they show whether exchanges through host memory are right.
SHARING = ("mpi", "gloo", "ring", "grpc_ps")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HAS_NCCL = "import horovod.{0} as hvd, sys; sys.exit(not hvd.nccl_built())"


def main(logs: Path) -> int:
    logs.mkdir(parents=True, exist_ok=True)
    machine = load_system("local")
    installation = find_installation(machine, default_environment(machine))
    installed = [framework for framework in FRAMEWORKS if importlib.util.find_spec(framework)]
    found = ask(installation, installed).seen
    usable = {one.framework: len(one.names) for one in found if one.names}
    between = {one.framework: one.backend or GPU_BACKEND for one in found}
    if not usable:
        what = " and ".join(f"{one.framework} {one.version}" for one in found)
        return say(f"no GPU: {what} see{'s' * (len(found) == 1)} none; {GPU_HELP}")
    flavour = environment.check_mpi(installation, environment.probe(installation))
    failed = []
    for framework, num_gpus in usable.items():
        backends = on_gpus(framework, between[framework])
        left = [name for name in backends if name != "horovod" or has_horovod(framework)]
        if len(left) < len(backends):
            click.echo(f"horovod is left out in {framework}: it is missing here, or was built without NCCL")
        sizes = {name: range(1, num_gpus + 1) for name in left}
        if framework == "torch" and num_gpus == 1:
            click.echo(
                f"one GPU: 2 and 3 ranks share it, which {between[framework]} cannot: shown on 1 rank only"
            )
            sizes |= {name: range(1, 4) for name in left if name in SHARING}
        commands = [
            ("doctor", [dlscale(), "doctor", "--require", f"{between[framework]}/{framework}"], {}),
            ("tests", pytest(framework), {"DLSCALE_REQUIRE_GPU": framework}),
            *contracts(framework, sizes, logs, installation, flavour),
            ("study", study(framework, left, num_gpus, logs), {}),
            *(
                [("collectives", collectives(num_gpus, logs), {})]
                if framework == "torch" and num_gpus > 1 and between[framework] == "nccl"
                else []
            ),
        ]
        for title, command, variables in commands:
            click.echo(f"{framework}: {title} ...")
            begin = time.monotonic()
            status = run(command, variables)
            outcome = f"failed with status {status}" if status else "passed"
            click.echo(f"{framework}: {title} {outcome} in {time.monotonic() - begin:.0f} s")
            if status:
                failed.append(f"{framework}: {title}")
    return say("; ".join(failed), what="failed: ") if failed else 0


def say(text: str, what: str = "") -> int:
    click.echo(f"gpu-check: {what}{text}", err=True)
    return 1


def run(command: list[str], variables: dict[str, str]) -> int:
    """The command's exit status; 124 if it took too long."""
    try:
        return subprocess.run(
            command, cwd=TOP, env={**os.environ, **variables}, check=False, timeout=LIMIT_SECONDS
        ).returncode
    except subprocess.TimeoutExpired:
        return 124


def on_gpus(framework: str, between: str) -> list[str]:
    """The backends that train in a framework on GPUs, most through the host's memory; `between` GPUs is one."""
    rows = [row for row in map(capabilities, NAMES) if "gpu" in row.devices and framework in row.frameworks]
    return [row.name for row in rows if not row.between_gpus or row.name == between]


def has_horovod(framework: str) -> bool:
    command = [sys.executable, "-c", HAS_NCCL.format(framework)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def dlscale() -> str:
    return str(Path(sys.prefix) / "bin" / "dlscale")


def pytest(framework: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "tests/gpu", "-q", "-k", framework]


def contracts(framework, sizes, logs, installation, flavour):
    """One launch per backend and number of ranks; a rank's own output is in a file of a folder that is kept.

    A backend with servers has one, a rank more that takes no GPU.
    """
    for backend, numbers in sizes.items():
        num_servers = int(capabilities(backend).servers)
        for num_ranks in numbers:
            folder = tempfile.mkdtemp(prefix=f"{backend}-{framework}-{num_ranks}-", dir=logs)
            program = [sys.executable, "tests/mpi/rank_pytest.py", folder, "tests/contract/test_trainer.py"]
            program += ["-q", "-p", "no:cacheprovider", "--timeout=120", "--timeout-method=thread"]
            program += ["-k", f"{backend}-{framework}"]
            variables = {
                "DLSCALE_UNDER_MPIEXEC": str(num_ranks),
                "DLSCALE_CONTRACT_BACKENDS": backend,
                "DLSCALE_CONTRACT_SERVERS": str(num_servers),
                "DLSCALE_CONTRACT_DEVICE": "gpu",
                "DLSCALE_REQUIRE": backend,
            }
            command = launchers.mpiexec_here(
                flavour,
                installation.mpiexec,
                num_ranks=num_ranks + num_servers,
                oversubscribed=False,
                variables=variables,
                program=program,
            )
            yield f"contract of {backend} on {num_ranks} ranks, into {folder}", command, variables


def study(framework: str, backends: list[str], num_gpus: int, logs: Path) -> list[str]:
    ranks = sorted({1, num_gpus})
    return [
        *(dlscale(), "run", "weak-scaling", "--device", "gpu", "--frameworks", framework, "--preset", "tiny"),
        *("--backends", ",".join(backends), "--set", "backend_options=horovod.operations=nccl"),
        *("--ranks", ",".join(map(str, ranks)), "--set", "servers=1", "--data", "synthetic"),
        *("--launches", "1", "--budget", f"{CASE_SECONDS * len(backends) * len(ranks)}s"),
        *("--results", str(logs / "results")),
    ]


def collectives(num_gpus: int, logs: Path) -> list[str]:
    """Every operation is checked before it is timed; exit status 2 if one fails."""
    return [
        *(dlscale(), "collectives", "--backends", "nccl", "--operations", "all", "--sizes", "4KiB:64MiB:x16"),
        *("--ranks", str(num_gpus), "--launches", "1", "--budget", "1min"),
        *("--results", str(logs / "results")),
    ]


if __name__ == "__main__":
    try:
        given = [word for word in sys.argv[1:] if word]
        sys.exit(main(Path(given[0] if given else tempfile.mkdtemp(prefix="dlscale-gpu-check-")).resolve()))
    except UsageError as error:
        sys.exit(say(str(error)))
