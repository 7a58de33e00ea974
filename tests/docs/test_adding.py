"""docs/adding.md, followed to the letter in a copy of the package: what it adds runs in a study."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.studies.conftest import STUDY

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "adding.md").read_text()
# An editable installation would find its own checkout first.
OWN_COPY = """
import sys
sys.meta_path[:] = [each for each in sys.meta_path if type(each).__name__ != "ScikitBuildRedirectingFinder"]
"""


class Copy:
    """A copy of the package, in which files are added and edited as the page says."""

    def __init__(self, folder):
        self._folder, self.package = folder, folder / "dlscale"
        for room in ("analysis", "base", "benchmarks", "collectives", "models"):
            shutil.copytree(
                TOP / room, self.package / room, ignore=shutil.ignore_patterns("__pycache__", "src")
            )
        (folder / "sitecustomize.py").write_text(OWN_COPY)

    def insert(self, file, before, text):
        """Write `text` where `before` is, which is there once."""
        path = self.package / file
        head, found, tail = path.read_text().partition(before)
        assert found, f"{file} has no {before!r}"
        path.write_text(head + text + found + tail)

    def run(self, *words):
        """The screen of a tiny study, none of whose cases failed."""
        study = self._folder / "tiny.toml"
        study.write_text(STUDY)
        results = str(self._folder / "results")
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "dlscale.benchmarks",
                "run",
                str(study),
                *words,
                "--results",
                results,
            ],
            cwd=self._folder,
            env=os.environ | {"PYTHONPATH": str(self._folder)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def section(heading):
    """A section of the page, without the next one."""
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def code_of(heading):
    """The first block of Python in a section of the page."""
    return re.search(r"^```python\n(.*?)^```", section(heading), re.MULTILINE | re.DOTALL)[1]


@pytest.mark.slow
@pytest.mark.requires("mpiexec")
def test_a_backend_is_a_file_and_a_row(copy):
    shutil.copy(TOP / "examples" / "mpi4py_backend.py", copy.package / "collectives" / "toy.py")
    copy.insert("collectives/capabilities.py", ")\n\nTABLE = ", f"{code_of('A backend')},")
    screen = copy.run("--backends", "none,toy")
    assert re.search(r"^toy +2 .* 1/1$", screen, re.MULTILINE)
