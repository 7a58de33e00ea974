"""Every shipped system's whole script and command line, as published recipes have them."""

import runpy
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"
REWRITE = runpy.run_path(str(FOLDER / "rewrite.py"))
NAMES = REWRITE["batch_systems"]()


def golden(name: str) -> str:
    return (FOLDER / f"{name}.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_scripts_and_command_lines(name: str):
    assert REWRITE["golden"](name) == golden(name), (
        "if it is meant: python tests/benchmarks/golden/rewrite.py"
    )


def test_there_is_one_for_each_system():
    assert sorted(path.stem for path in FOLDER.glob("*.sh")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_bash_can_read_them(name: str):
    subprocess.run(["bash", "-n", str(FOLDER / f"{name}.sh")], check=True)
