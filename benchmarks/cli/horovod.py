"""What `make horovod` runs: compiles Horovod for an environment of a system and installs it there.

python -m dlscale.benchmarks.cli.horovod --environment .venv
"""

from __future__ import annotations

import sys
import time

import click

from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import run_command
from dlscale.benchmarks.horovod_build import build_horovod
from dlscale.benchmarks.systems.start import find_installation
from dlscale.benchmarks.systems.system import load_system


@click.command()
@click.option("--system", default="local", show_default=True, help="System that the environment belongs to.")
@click.option("--environment", help="Environment to build for; default: the one that this runs in.")
def horovod(system: str, environment: str | None) -> None:
    """Build Horovod for the frameworks and the MPI of an environment, and install it there.

    HOROVOD_GPU_OPERATIONS=NCCL and Horovod's other build variables are passed on to it; CXX names the compiler.
    """
    machine, begin = load_system(system), time.monotonic()
    installation = find_installation(machine, environment)
    release = build_horovod(installation, tell=lambda text: click.echo(text))
    click.echo(
        f"Horovod {release} is ready in {installation.name} after {format_seconds(time.monotonic() - begin)}"
    )


if __name__ == "__main__":
    sys.exit(run_command(horovod, "make horovod"))
