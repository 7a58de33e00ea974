"""What `make horovod` runs: compiles Horovod for an environment of a system and installs it there.

python -m dlscale.benchmarks.cli.horovod --environment .venv
"""

from __future__ import annotations

import sys
import time

import click
from rich.console import Console
from rich.markup import escape

from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import run_command
from dlscale.benchmarks.horovod_build import build_horovod
from dlscale.benchmarks.systems.start import default_environment, find_installation
from dlscale.benchmarks.systems.system import load_system


@click.command()
@click.option("--system", default="local", show_default=True, help="System that the environment belongs to.")
@click.option("--environment", help="Environment to build for; default: the one that this runs in.")
def horovod(system: str, environment: str | None) -> None:
    """Build Horovod for the frameworks and the MPI of an environment, and install it there.

    HOROVOD_GPU_OPERATIONS=NCCL and Horovod's other build variables are passed on to it; CXX names the compiler.
    """
    machine = load_system(system)
    name = environment or default_environment(machine)
    target = find_installation(machine, name)
    begin = time.monotonic()
    console = Console()
    with console.status(f"Horovod for {escape(name)}") as status:  # draws nothing where there is no terminal

        def show(line: str) -> None:
            seconds = format_seconds(time.monotonic() - begin)
            status.update(escape(f"{seconds}  {line}"[: console.width - 4]))

        facts = build_horovod(target, tell=lambda text: click.echo(text), show=show)
    click.echo(f"Horovod {facts.horovod} is ready in {name} after {format_seconds(time.monotonic() - begin)}")


def main() -> None:
    """Run the command and exit: 0 Horovod is installed, 1 it is not."""
    sys.exit(run_command(horovod, "make horovod"))


if __name__ == "__main__":
    main()
