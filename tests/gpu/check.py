"""Everything about GPUs that only a machine with GPUs can say: `make gpu-check`.

For each framework that sees GPUs: doctor; the tests beside this file; a tiny study and the contract of the backends
that train on GPUs, on 1 .. #GPUs ranks, and of torch's through host memory on 2 and 3 ranks that share the GPU where
there is only one; in torch the operations between GPUs over message sizes, where there are several. What times nothing
runs side by side, as far as every rank has a core: MPI's wait busily. All of it is tried, and what failed is listed;
ends with 1 then, or where there is no GPU.

check.py [FOLDER]     outputs, records of studies and what ranks print are kept in FOLDER (one of their own)
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from dlscale.base import launchers
from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.probe import Question
from dlscale.benchmarks.systems.start import find_installation
from dlscale.benchmarks.systems.system import GPU_BACKEND, load_system
from dlscale.collectives import NAMES, capabilities
from dlscale.collectives.capabilities import carried_shards
from dlscale.collectives.sharding import PARAMETERS
from dlscale.models.frameworks import DEVICES, FRAMEWORKS, GPU_HELP

TOP = Path(__file__).parents[2]
LIMIT_SECONDS = 300  # of a step: where one rank failed early, others wait for it
REHEARSED_RANKS = 2
# Ranks that share a GPU are refused by NCCL, and by studies; they show whether exchanges through host memory are right.
SHARING = ("mpi", "gloo", "ring", "grpc_ps")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HAS_NCCL = "import horovod.{0} as hvd, sys; sys.exit(not hvd.nccl_built())"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    title: str
    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)


@click.command()
@click.argument("folder", default="")
@click.option(
    "--device", type=click.Choice(DEVICES), default="gpu", help="cpu: a rehearsal, without tests/gpu."
)
def main(folder: str, device: str) -> None:
    """Run all steps, and list those that failed."""
    logs = Path(folder or tempfile.mkdtemp(prefix="dlscale-gpu-check-")).resolve()
    logs.mkdir(parents=True, exist_ok=True)
    machine = load_system("local")
    installation = find_installation(machine)
    installed = [framework for framework in FRAMEWORKS if importlib.util.find_spec(framework)]
    report = environment.probe(installation, Question(gpus=installed))
    found = report.gpus
    usable = {one.framework: len(one.names) for one in found if one.names}
    between = {one.framework: one.backend or GPU_BACKEND for one in found}
    if device == "cpu":
        usable = dict.fromkeys(installed, REHEARSED_RANKS)
    elif not usable:
        what = " and ".join(f"{one.framework} {one.version}" for one in found)
        raise UsageError(f"no GPU: {what} see{'s' * (len(found) == 1)} none; {GPU_HELP}")
    machine = machine.model_copy(update={"launcher": "mpiexec"})
    _, flavour, _ = environment.with_found_launcher(machine, installation, report)
    failed = []
    for framework, num_gpus in usable.items():
        backends = [
            name for name in on_gpus(framework, between[framework]) if device in capabilities(name).devices
        ]
        left = [name for name in backends if name != "horovod" or has_horovod(framework)]
        if len(left) < len(backends):
            click.echo(f"horovod is left out in {framework}: it is missing here, or was built without NCCL")
        sizes = {name: range(1, num_gpus + 1) for name in left}
        if framework == "torch" and num_gpus == 1:
            click.echo(
                f"one GPU: 2 and 3 ranks share it, which {between[framework]} cannot: shown on 1 rank only"
            )
            sizes |= {name: range(1, 4) for name in left if name in SHARING}
        first, timed = [doctor(between[framework] if device == "gpu" else "none")], []
        if device == "gpu":
            first.append(tests(framework))
            if framework == "torch" and num_gpus > 1:
                timed.append(collectives(between[framework], num_gpus, logs))
        untimed = [
            study(framework, left, num_gpus, logs, device),
            *contracts(framework, sizes, logs, installation, flavour, device),
        ]
        largest = 1 + max(max(numbers) for numbers in sizes.values())  # with a server
        at_once = max(1, len(os.sched_getaffinity(0)) // largest)
        for steps, workers in ((first, 1), (untimed, at_once), (timed, 1)):
            with ThreadPoolExecutor(workers) as pool:
                failed += filter(None, pool.map(lambda step: run(step, framework, logs), steps))  # noqa: B023
    if failed:
        raise UsageError(f"failed: {'; '.join(failed)}")


def run(step: Step, framework: str, logs: Path) -> str:
    """The name of a step that failed, whose last lines are printed; empty if it passed."""
    name = f"{framework}: {step.title}"
    output = logs / f"{name.replace(': ', '-').replace(' ', '-')}.txt"
    begin = time.monotonic()
    with output.open("wb") as file:
        try:
            status = subprocess.run(
                step.command,
                cwd=TOP,
                env={**os.environ, **step.variables},
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=LIMIT_SECONDS,
            ).returncode
        except subprocess.TimeoutExpired:
            status = 124
    seconds = f"in {time.monotonic() - begin:.0f} s"
    if not status:
        click.echo(f"{name} passed {seconds}")
        return ""
    last = output.read_text(errors="replace").rstrip().splitlines()[-15:]
    click.echo("\n".join([*last, f"{name} failed with status {status} {seconds}; see {logs}"]))
    return name


def on_gpus(framework: str, between: str) -> list[str]:
    """The backends that train in a framework on GPUs, most through the host's memory; `between` GPUs is one."""
    rows = [row for row in map(capabilities, NAMES) if "gpu" in row.devices and framework in row.frameworks]
    return [row.name for row in rows if not row.between_gpus or row.name == between]


def has_horovod(framework: str) -> bool:
    command = [sys.executable, "-c", HAS_NCCL.format(framework)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def dlscale() -> str:
    return str(Path(sys.prefix) / "bin" / "dlscale")


def doctor(backend: str) -> Step:
    return Step(title="doctor", command=[dlscale(), "doctor", "--require", backend])


def tests(framework: str) -> Step:
    command = [sys.executable, "-m", "pytest", "tests/gpu", "-q", "-k", framework]
    return Step(title="tests", command=command, variables={"DLSCALE_REQUIRE_GPU": framework})


def contracts(framework, sizes, logs, installation, flavour, device) -> Iterator[Step]:
    """One launch per contract, backend and number of ranks; a rank's own output is in a file of a folder that is kept.

    A backend with servers has one, a rank more that takes no GPU.
    """

    def step(title: str, file: str, num_ranks: int, *, selected: str, backends: str) -> Step:
        num_servers = int("," not in backends and capabilities(backends).servers)
        folder = logs / f"{framework}-{title.replace(' ', '-')}-{num_ranks}"
        folder.mkdir(exist_ok=True)
        program = [sys.executable, "tests/mpi/rank_pytest.py", str(folder), f"tests/contract/{file}"]
        program += ["-q", "-p", "no:cacheprovider", "--timeout=120", "--timeout-method=thread"]
        program += ["-k", selected]
        variables = {
            "DLSCALE_UNDER_MPIEXEC": str(num_ranks),
            "DLSCALE_CONTRACT_BACKENDS": backends,
            "DLSCALE_CONTRACT_SERVERS": str(num_servers),
            "DLSCALE_CONTRACT_DEVICE": device,
            "DLSCALE_REQUIRE": backends,
        }
        size = num_ranks + num_servers
        start = launchers.Start(num_ranks=size, ranks_per_node=size, variables=variables, program=program)
        start = replace(start, mpiexec=str(installation.mpiexec), flavour=flavour)
        command = launchers.LAUNCHERS["mpiexec"].command(start)
        title = f"{title} on {num_ranks} rank{'s' * (num_ranks > 1)}"
        return Step(title=title, command=command, variables=variables)

    for backend, numbers in sizes.items():
        alone = {"selected": f"{backend}-{framework}", "backends": backend}
        for num_ranks in numbers:
            yield step(f"contract of {backend}", "test_trainer.py", num_ranks, **alone)
            if PARAMETERS in carried_shards(backend, framework):
                yield step(f"sharded weights over {backend}", "test_sharded.py", num_ranks, **alone)
    if framework == "torch":
        for num_ranks in range(2, 1 + min(3, max(sizes["mpi"]))):
            yield step("rows", "test_split.py", num_ranks, selected="test", backends="mpi,gloo")


def study(framework: str, backends: list[str], num_gpus: int, logs: Path, device: str) -> Step:
    """Once through everything, with the shortest windows, while contracts run: its numbers say nothing."""
    ranks = sorted({1, num_gpus})
    command = [
        *(
            dlscale(),
            "run",
            "weak-scaling",
            "--device",
            device,
            "--frameworks",
            framework,
            "--preset",
            "tiny",
        ),
        *("--backends", ",".join(backends), "--set", "backend_options=horovod.operations=nccl"),
        *("--ranks", ",".join(map(str, ranks)), "--set", "servers=1", "--data", "synthetic"),
        *("--launches", "1", "--set", "controls=none", "--set", "reference_launches=0"),
        *("--results", str(logs / "results")),
    ]
    return Step(title="study", command=command)


def collectives(backend: str, num_gpus: int, logs: Path) -> Step:
    """Every operation is checked before it is timed; exit status 2 if one fails."""
    command = [
        *(dlscale(), "collectives", "--backends", backend, "--operations", "all"),
        *("--sizes", "4KiB:64MiB:x16", "--ranks", str(num_gpus), "--launches", "1", "--budget", "1min"),
        *("--results", str(logs / "results")),
    ]
    return Step(title="collectives", command=command)


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
    except (UsageError, click.ClickException) as error:
        click.echo(f"gpu-check: {error}", err=True)
        sys.exit(1)
