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
IMPORT = "from dlscale.collectives.algorithms import toy\n"
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
        study.write_text(STUDY.replace('controls = ["synthetic", "loader"]', ""))
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
    """The blocks of Python in a section of the page."""
    return re.findall(r"^```python\n(.*?)^```", section(heading), re.MULTILINE | re.DOTALL)


pytestmark = [pytest.mark.slow, pytest.mark.requires("mpiexec")]


def test_a_backend_is_a_file_and_a_row(copy):
    shutil.copy(TOP / "examples" / "mpi4py_backend.py", copy.package / "collectives" / "toy.py")
    copy.insert("collectives/capabilities.py", ")\n\nTABLE = ", f"{code_of('A backend')[0]},")
    screen = copy.run("--backends", "none,toy")
    assert re.search(r"^toy +2 .* 1/1$", screen, re.MULTILINE)


def test_an_algorithm_is_a_file_two_names_and_its_rule_said_again(copy):
    module, reference = code_of("An algorithm")
    (copy.package / "collectives" / "algorithms" / "toy.py").write_text(module)
    copy.insert("collectives/algorithms/__init__.py", ")\n\n\n@dataclass", ', "toy"')
    copy.insert("collectives/capabilities.py", ")\n\n\n@dataclass", ', "toy"')
    copy.insert("benchmarks/rank/reference.py", "from dlscale.collectives.algorithms import", IMPORT)
    copy.insert("benchmarks/rank/reference.py", "def reference_of", reference)
    screen = copy.run("--backends", "none,mpi", "--set", "algorithms=toy", "--set", "toy.interval=2")
    assert re.search(r"^mpi toy.* 2 .* 1/1$", screen, re.MULTILINE)


def test_a_workload_is_a_folder_and_a_name(copy):
    folder = copy.package / "models" / "toy"
    shutil.copytree(copy.package / "models" / "hep_cnn", folder)
    for file in folder.glob("*.py"):
        file.write_text(file.read_text().replace("hep_cnn", "toy"))
    copy.insert("models/__init__.py", ")\n\n\ndef load_workload", ', "toy"')
    screen = copy.run("--workloads", "toy", "--backends", "none,mpi")
    assert re.search(r"^mpi +2 .* 1/1$", screen, re.MULTILINE)
