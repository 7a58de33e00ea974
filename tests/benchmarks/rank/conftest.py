"""Shared by the tests of ranks."""

import sys
from types import SimpleNamespace

import pytest


@pytest.fixture
def mpi_constants(monkeypatch):
    """The two constants of mpi4py that gates name, without MPI."""
    monkeypatch.setitem(
        sys.modules, "mpi4py", SimpleNamespace(MPI=SimpleNamespace(IN_PLACE="in place", MAX=max))
    )
