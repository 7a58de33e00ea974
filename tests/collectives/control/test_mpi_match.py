"""One MPI per process: a mix of two is refused before it can abort."""

import subprocess
import sys

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.control.mpi_match import require_same_library, require_same_mpi


@pytest.mark.parametrize(
    ("compiled", "loaded"),
    [("Open MPI", "Open MPI"), ("MPICH", "MPICH"), ("MPICH", "Intel MPI"), ("MPICH", "Cray MPICH")],
)
def test_the_same_mpi_and_the_mpich_family_pass(compiled, loaded):
    require_same_mpi(compiled=compiled, loaded=loaded)


@pytest.mark.parametrize(("compiled", "loaded"), [("Open MPI", "MPICH"), ("MPICH", "Open MPI"), ("a", "b")])
def test_a_mix_is_refused_with_both_names_and_the_remedy(compiled, loaded):
    with pytest.raises(UsageError) as refusal:
        require_same_mpi(compiled=compiled, loaded=loaded)
    text = str(refusal.value)
    assert f"compiled with {compiled}" in text
    assert f"mpi4py loaded {loaded}" in text
    assert "pip install --no-deps --force-reinstall ." in text


def test_two_libraries_are_refused_by_their_first_lines():
    require_same_library(called="Open MPI v5.0.11", loaded="Open MPI v5.0.11")
    with pytest.raises(UsageError, match=r"calls MPICH 5\.0\.2, but mpi4py loaded MPICH 4\.1;"):
        require_same_library(called="MPICH\t5.0.2\nReleased in", loaded="MPICH\t4.1\nReleased in")


def in_a_fresh_process(program):
    """What `program` prints; MPI is not to be initialised in the process of the tests."""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


WITHOUT_ENGINE = """
import sys

class NoEngine:
    def find_spec(self, name, *_):
        if name.endswith("._engine"):
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, NoEngine())
"""
IMPORT_ENGINE = """
from dlscale.base.errors import UsageError
try:
    import dlscale.collectives.ring.engine
except UsageError as error:
    print(error)
"""


@pytest.mark.requires("ring")
def test_the_engine_refuses_the_mix_when_it_is_imported():
    said = in_a_fresh_process(
        f"from mpi4py import MPI\nMPI.get_vendor = lambda: ('Another MPI', (1, 0, 0))\n{IMPORT_ENGINE}"
    )
    assert said.startswith("backend ring was compiled with ")
    assert "but mpi4py loaded Another MPI; reinstall" in said


def test_an_extension_that_was_not_built_is_a_usage_error():
    said = in_a_fresh_process(f"{WITHOUT_ENGINE}{IMPORT_ENGINE}")
    assert said.startswith("backend ring was not built: ")
    assert "--config-settings=cmake.define.DLSCALE_WITH_MPI=ON" in said


@pytest.mark.requires("ring")
def test_the_extension_finds_its_mpi_by_itself():
    said = in_a_fresh_process(
        "import dlscale.collectives.ring._engine as e, sys\n"
        "print('mpi4py' in sys.modules, e.MPI_VENDOR.split()[0] in e.library_version())"
    )
    assert said == "False True"
