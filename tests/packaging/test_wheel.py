"""What `make dist` makes: one name, all that the checkout has, an installation that works in an empty environment."""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
pytestmark = [pytest.mark.nightly, pytest.mark.requires("ring"), pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def dist():
    command = ["make", "dist", f"PYTHON={sys.base_prefix}/bin/python3"]
    subprocess.run(command, cwd=TOP, check=True, capture_output=True, timeout=900)
    return TOP / "dist"


@pytest.fixture(scope="module")
def wheel(dist):
    (path,) = dist.glob("*.whl")
    return path


def test_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0].split("-")[0] for name in names} == {"dlscale"}
    for name in (
        "benchmarks/systems/local.toml",
        "benchmarks/study/studies/weak-scaling.toml",
        "models/hep_cnn/sample_64.h5",
        "analysis/record_fields.toml",
        "analysis/render/page.css",
        "analysis/render/page.html.j2",
        "analysis/render/page.js",
        "analysis/findings/productivity.csv",
        "analysis/published/index.html.j2",
        "analysis/tables.toml",
        "analysis/templates/proposal.md.j2",
        "collectives/ring/build.json",
        "analysis/py.typed",
        "results/published/figures.toml",
        "results/published/claims/horovod.toml",
    ):
        assert f"dlscale/{name}" in names
    assert any(
        name.startswith("dlscale/collectives/ring/_engine.") and name.endswith(".so") for name in names
    )
    assert "dlscale/collectives/training/_tensorflow_ops.so" in names
    assert not [name for name in names if "/src/" in name or "/bench/" in name or "CMakeLists" in name]


def test_no_place_of_this_machine_is_in_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        found = [name for name in archive.namelist() if bytes(TOP) in archive.read(name)]
    assert not found
    assert "-manylinux_" in wheel.name


def test_the_source_archive_has_what_a_build_needs(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "collectives/CMakeLists.txt", "README.md"} <= names
    assert not [name for name in names if name.startswith("tests/")]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment with nothing but the wheel, MPICH and what they ask for."""
    folder = tmp_path_factory.mktemp("installed")
    venv.EnvBuilder(with_pip=True).create(folder)
    command = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", f"{wheel}[mpich]"]
    variables = {**os.environ, "PIP_CONSTRAINT": str(TOP / "constraints.txt")}
    subprocess.run(command, check=True, capture_output=True, timeout=600, env=variables)
    return folder


def run(installed, *words, folder):
    """Standard output of the installed command, started in a folder of the user's."""
    command = [str(installed / "bin/dlscale"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_installation_knows_its_systems_and_says_what_is_missing(installed, tmp_path):
    systems = json.loads(run(installed, "system", "list", "--json", folder=tmp_path))
    assert {"local", "cori"} <= {row["system"] for row in systems["rows"]}
    rows = json.loads(run(installed, "doctor", "--json", folder=tmp_path))["rows"]
    usable = {row["backend"] for row in rows if row["framework"] == "torch" and row["usable"]}
    assert {"none", "mpi", "gloo", "ring"} <= usable
    of_tensorflow = {(row["usable"], row["install"]) for row in rows if row["framework"] == "tensorflow"}
    assert of_tensorflow == {(False, "pip install 'dlscale[tensorflow]'")}


def test_an_installation_runs_a_study(installed, tmp_path):
    options = [
        "--preset",
        "tiny",
        "--ranks",
        "1,2",
        "--backends",
        "none,ring",
        "--launches",
        "1",
        "--budget",
        "20s",
    ]
    assert "HEP-CNN tiny" in run(installed, "run", "weak-scaling", *options, folder=tmp_path)
    assert list(tmp_path.glob("results/local/weak-scaling-*/report.html"))


@pytest.mark.parametrize("name", ["benchmarks", "models", "collectives", "analysis"])
def test_the_bare_names_are_not_importable_elsewhere(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "ModuleNotFoundError" in done.stderr
