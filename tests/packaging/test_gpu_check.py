"""The check of a GPU machine, rehearsed on cores: no GPU is at hand where it is changed."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
pytestmark = [pytest.mark.nightly, pytest.mark.requires("ring"), pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The sources elsewhere: the check makes an environment among them."""
    folder = tmp_path_factory.mktemp("copy")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=TOP, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (TOP / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TOP / name, folder / name)
    return folder


def rehearse(copy, *options):
    command = ["packaging/gpu/check.sh", "--rehearse", "--python", sys.executable, *options]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command, cwd=copy, capture_output=True, text=True, check=False, env=os.environ | {"PATH": path}
    )


def test_the_check_passes(copy):
    done = rehearse(copy, "--only-check", "--seconds", "1200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch: contract of gloo on 2 ranks passed" in done.stdout
    assert "check: passed" in done.stdout


def test_studies_that_are_interrupted_are_packed_and_told(copy):
    done = rehearse(copy, "--only-studies", "--seconds", "75")
    assert done.returncode == 1, done.stderr
    # A fast machine is through with the plain networks by then.
    assert re.search("study: (interrupted after|ended with status 0)", done.stdout), done.stdout
    assert "compiled: not measured" in done.stdout
    names = zipfile.ZipFile(copy / "logs-gpu/records.zip").namelist()
    assert any(name.endswith("report.html") for name in names)
    assert any("/records/" in name for name in names)
