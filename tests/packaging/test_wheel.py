"""The wheel holds what the checkout has, under the one name, and works away from the checkout."""

import json
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
pytestmark = [pytest.mark.nightly, pytest.mark.requires("ring"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        str(TOP),
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
    ]
    subprocess.run(
        [*command, "--config-settings=cmake.define.DLSCALE_WITH_MPI=ON"],
        check=True,
        capture_output=True,
        timeout=250,
    )
    return next(folder.glob("*.whl"))


def test_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0].split("-")[0] for name in names} == {"dlscale"}
    for name in (
        "benchmarks/systems/local.toml",
        "benchmarks/study/studies/weak-scaling.toml",
        "models/hep_cnn/sample_64.h5",
        "models/hep_cnn/events/rpv_gluino.slha",
        "models/hep_cnn/events/components.toml",
        "analysis/findings/record_fields.toml",
        "analysis/render/html/page.css",
        "analysis/render/html/page.html.j2",
        "analysis/render/html/start.js",
        "analysis/findings/productivity.csv",
        "analysis/published/index.html.j2",
        "analysis/render/tidy.toml",
        "benchmarks/exports/reframe.py.template",
        "benchmarks/exports/training_rules.yaml",
        "collectives/ring/build.json",
        "analysis/py.typed",
        "results/published/figures.toml",
        "results/published/networks.toml",
        "results/published/claims/horovod.toml",
    ):
        assert f"dlscale/{name}" in names
    assert any(
        name.startswith("dlscale/collectives/ring/_engine.") and name.endswith(".so") for name in names
    )
    assert "dlscale/collectives/training/_tensorflow_ops.so" in names
    assert not [name for name in names if "/src/" in name or "/bench/" in name or "CMakeLists" in name]


def test_it_works_away_from_the_checkout(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    # -S: no site, hence no editable installation; the dependencies come from its folder all the same.
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {sysconfig.get_path('platlib')!r}]\n"
        "from dlscale.benchmarks.cli import main\n"
        "import dlscale.models as models\n"
        "print(models.__file__)\n"
        "print(models.load_workload('hep_cnn').input('small').path)\n"
        "import importlib.util\n"
        "print(importlib.util.find_spec('dlscale.collectives.ring._engine').origin)\n"
        "main(['system', 'list', '--json'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    *places, systems = done.stdout.splitlines()
    assert all(place.startswith(str(tmp_path)) for place in places)
    assert {"local", "cori"} <= {row["system"] for row in json.loads(systems)["rows"]}


@pytest.mark.parametrize("name", ["benchmarks", "models", "collectives", "analysis"])
def test_the_bare_names_are_not_importable_elsewhere(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "ModuleNotFoundError" in done.stderr
