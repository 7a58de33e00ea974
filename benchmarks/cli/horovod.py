"""What `make horovod` does: compiles Horovod for an environment of a system and installs it there.

python -m dlscale.benchmarks.cli.horovod --environment .venv
"""

from __future__ import annotations

import signal
import sys
import time

import click
from rich.console import Console

from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import FAILED_USAGE, INTERRUPTED
from dlscale.benchmarks.horovod_build.build import build_horovod
from dlscale.benchmarks.horovod_build.progress import Bar
from dlscale.benchmarks.horovod_build.target import Target
from dlscale.benchmarks.systems.system import default_environment, find_installation, load_system


@click.command()
@click.option("--system", default="local", show_default=True, help="Machine whose environments are meant.")
@click.option("--environment", help="Where to install it; default: the environment that this runs in.")
def horovod(system: str, environment: str | None) -> None:
    """Build Horovod for the frameworks and the MPI of an environment, and install it there.

    HOROVOD_GPU_OPERATIONS=NCCL and Horovod's other build variables are passed on to it; CXX names the compiler.
    """
    machine = load_system(system)
    name = environment or default_environment(machine)
    found = find_installation(machine, name)
    target = Target(
        prefix=found.prefix,
        python=found.python,
        mpiexec=found.mpiexec,
        variables=found.variables,
    )
    begin = time.monotonic()
    with Bar(Console()) as bar:
        facts = build_horovod(target, watch=bar)
        bar.tell(
            f"Horovod {facts.horovod} is ready in {name}, after {format_seconds(time.monotonic() - begin)}"
        )


def main() -> None:
    """Run it and exit: 0 Horovod is there, 1 it is not."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started ends too
    try:
        horovod.main(prog_name="make horovod", standalone_mode=False)
    except (UsageError, click.ClickException) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"make horovod: {' '.join(text.split())}", err=True)
        sys.exit(FAILED_USAGE)
    except (KeyboardInterrupt, click.Abort):
        click.echo("\nmake horovod: stopped; the same command begins again", err=True)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
