"""Everything about GPUs that only a machine with GPUs can say: `make gpu-check`.

For each framework that sees GPUs: doctor; the tests beside this file; the contract of the backends that train on GPUs,
on 1 .. #GPUs ranks; a tiny study; in torch NCCL's operations over message sizes, where there are several GPUs. Ends
with 1 at the first failure, or where there is no GPU.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch import environment, launchers
from dlscale.benchmarks.launch.gpus import ask
from dlscale.benchmarks.systems.system import default_environment, find_installation, load_system
from dlscale.collectives import NAMES, capabilities
from dlscale.models.frameworks import FRAMEWORKS, GPU_HELP

TOP = Path(__file__).parents[2]
LIMIT_SECONDS = 900
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HAS_NCCL = "import horovod.{0} as hvd, sys; sys.exit(not hvd.nccl_built())"


def main() -> int:
    machine = load_system("local")
    installation = find_installation(machine, default_environment(machine))
    installed = [framework for framework in FRAMEWORKS if importlib.util.find_spec(framework)]
    found = ask(installation, installed).seen
    usable = {one.framework: len(one.names) for one in found if one.names}
    if not usable:
        what = " and ".join(f"{one.framework} {one.version}" for one in found)
        return say(f"no NVIDIA GPU: {what} see{'s' * (len(found) == 1)} none; {GPU_HELP}")
    flavour = environment.check_mpi(installation, environment.probe(installation))
    for framework, num_gpus in usable.items():
        backends = on_gpus(framework)
        left = [name for name in backends if name != "horovod" or has_horovod(framework)]
        if len(left) < len(backends):
            click.echo(f"horovod is left out in {framework}: it is missing here, or was built without NCCL")
        commands = [
            ("doctor", [dlscale(), "doctor", "--require", f"nccl/{framework}"], {}),
            ("tests", pytest(framework), {"DLSCALE_REQUIRE_GPU": framework}),
            *contracts(framework, left, num_gpus, installation, flavour),
            ("study", study(framework, left, num_gpus), {}),
            *([("collectives", collectives(num_gpus), {})] if framework == "torch" and num_gpus > 1 else []),
        ]
        for title, command, variables in commands:
            click.echo(f"{framework}: {title} ...")
            if status := run(command, variables):
                return say(f"{framework}: {title} failed with status {status}")
    return 0


def say(text: str) -> int:
    click.echo(f"gpu-check: {text}", err=True)
    return 1


def run(command: list[str], variables: dict[str, str]) -> int:
    """The command's exit status; 124 if it took too long."""
    try:
        return subprocess.run(
            command, cwd=TOP, env={**os.environ, **variables}, check=False, timeout=LIMIT_SECONDS
        ).returncode
    except subprocess.TimeoutExpired:
        return 124


def on_gpus(framework: str) -> list[str]:
    """The backends that train in a framework on GPUs; those on host buffers do it through the host's memory."""
    rows = map(capabilities, NAMES)
    return [row.name for row in rows if "gpu" in row.devices and framework in row.frameworks]


def has_horovod(framework: str) -> bool:
    command = [sys.executable, "-c", HAS_NCCL.format(framework)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def dlscale() -> str:
    return str(Path(sys.prefix) / "bin" / "dlscale")


def pytest(framework: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "tests/gpu", "-q", "-k", framework]


def contracts(framework, backends, num_gpus, installation, flavour):
    """One launch per backend and number of ranks; a rank's own output is in a file of a folder that is kept.

    A backend with servers has one, a rank more that takes no GPU.
    """
    for backend in backends:
        num_servers = int(capabilities(backend).servers)
        for num_ranks in range(1, num_gpus + 1):
            folder = tempfile.mkdtemp(prefix=f"dlscale-gpu-check-{backend}-{framework}-{num_ranks}-")
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
            command = launchers.mpiexec(
                flavour,
                installation.mpiexec,
                num_ranks=num_ranks + num_servers,
                oversubscribed=False,
                variables=variables,
                program=program,
            )
            yield f"contract of {backend} on {num_ranks} ranks, into {folder}", command, variables


def study(framework: str, backends: list[str], num_gpus: int) -> list[str]:
    ranks = sorted({1, num_gpus})
    return [
        *(dlscale(), "run", "weak-scaling", "--device", "gpu", "--frameworks", framework, "--preset", "tiny"),
        *("--backends", ",".join(backends), "--set", "backend_options=horovod.operations=nccl"),
        *("--ranks", ",".join(map(str, ranks)), "--set", "servers=1", "--data", "synthetic"),
        *("--launches", "1", "--budget", "5min"),
        *("--results", tempfile.mkdtemp(prefix="dlscale-gpu-check-results-")),
    ]


def collectives(num_gpus: int) -> list[str]:
    """Every operation is checked before it is timed; exit status 2 if one fails."""
    return [
        *(dlscale(), "collectives", "--backends", "nccl", "--operations", "all", "--sizes", "4KiB:64MiB:x16"),
        *("--ranks", str(num_gpus), "--launches", "1", "--budget", "1min"),
        *("--results", tempfile.mkdtemp(prefix="dlscale-gpu-check-collectives-")),
    ]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        sys.exit(say(str(error)))
