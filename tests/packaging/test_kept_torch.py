"""Commands that bring dlscale into an environment with torch leave that torch there, without network.

PyPI's torch with CUDA is version 2.11.0 for pip, and says itself that it is 2.11.0+cu130.
"""

import os
import re
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from dlscale.base.definitions import names
from dlscale.benchmarks.systems.system import load_system

TOP = Path(__file__).parents[2]
pytestmark = pytest.mark.nightly


def write_wheel(folder, name, version, *lines, program):
    stem = f"{name}-{version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/__init__.py", program)
        about = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines]
        archive.writestr(f"{stem}.dist-info/METADATA", "\n".join(about) + "\n")
        archive.writestr(
            f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{stem}.dist-info/RECORD", "")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """An environment with a torch, and beside it a folder of wheels that has a newer one."""
    folder = tmp_path_factory.mktemp("site")
    wheels = folder / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "torch", "2.11.0", program="__version__ = '2.11.0+cu130'\n")
    write_wheel(wheels, "mpich", "5.0.2", program="")
    mpich = ("Provides-Extra: mpi", "Provides-Extra: mpich", 'Requires-Dist: mpich>=5; extra == "mpich"')
    write_wheel(wheels, "dlscale", "0.1.0", "Requires-Dist: torch>=2.4", *mpich, program="")
    venv.EnvBuilder(with_pip=True).create(folder / "env")
    run(folder, "pip install torch==2.11.0")
    write_wheel(wheels, "torch", "2.13.0", program="__version__ = '2.13.0'\n")
    return folder


def run(site, command):
    """Standard output of a shell's command in the environment, without network."""
    variables = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(site / "wheels"), "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        ["bash", "-c", f"source env/bin/activate && {command}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=site,
        timeout=120,
        env=os.environ | variables,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands():
    """Those of docs/gpu.md and of the systems' environment `current`, where they name torch."""
    lines = re.findall(r"^pip install .*torch==.*$", (TOP / "docs/gpu.md").read_text(), re.MULTILINE)
    yield pytest.param(*lines, id="docs/gpu.md")
    for name in names("systems"):
        current = load_system(name).environments.get("current")
        if current and "torch==" in current.setup:
            yield pytest.param(current.setup, id=name)


@pytest.mark.parametrize("command", list(commands()))
def test_torch_stays(site, command):
    run(site, command)
    assert run(site, 'python -c "import dlscale, torch; print(torch.__version__)"').strip() == "2.11.0+cu130"
    run(site, "pip uninstall --yes dlscale")
