"""One MPI per process: a mix of two is refused before it can abort."""

import contextlib
import subprocess
import sys

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.control.by_mpi import require_same_mpi


@pytest.mark.parametrize(
    ("compiled", "loaded", "library", "said"),
    [
        ("Open MPI", "Open MPI", "5.0.2", ""),
        ("MPICH", "Intel MPI", "5.0.2", ""),
        ("MPICH", "Cray MPICH", "5.0.2", ""),
        ("Open MPI", "MPICH", "5.0.2", "compiled with Open MPI, but mpi4py loaded MPICH"),
        ("a", "b", "5.0.2", "compiled with a, but mpi4py loaded b"),
        ("MPICH", "MPICH", "4.1", "calls 5.0.2, but mpi4py loaded 4.1;"),
    ],
)
def test_a_mix_is_refused(compiled, loaded, library, said):
    refused = pytest.raises(UsageError, match=f"{said}.*pip install") if said else contextlib.nullcontext()
    with refused:
        require_same_mpi(
            compiled=compiled, called="5.0.2\nReleased in", loaded=loaded, library=f"{library}\nReleased in"
        )


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
