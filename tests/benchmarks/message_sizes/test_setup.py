"""Setting peers up: each step told, nothing done twice, and a failure remembered with its reason."""

import re
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.message_sizes import peers as setup
from dlscale.benchmarks.message_sizes.peers import Peer, Place, choose_peers, load_peers
from dlscale.benchmarks.records.collective_operations import COLLECTIVES
from dlscale.benchmarks.systems.start import Installation


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """pip and the compiler do nothing; what pip was asked for is listed."""
    asked: list[Sequence[str]] = []

    def pip_install(place: Place, packages: Sequence[str]) -> None:
        asked.append(packages)

    def create(folder: Path, **_: object) -> None:
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / "bin" / "python").touch()

    monkeypatch.setattr(setup, "pip_install", pip_install)
    monkeypatch.setattr(setup.venv, "create", create)
    return asked


def test_a_second_time_nothing_is_installed(peer: Peer, place: Place, no_network: list[Sequence[str]]):
    told: list[str] = []
    assert setup.set_up(peer, place, tell=told.append) is None
    assert told[0] == "mpich: creating its environment"
    assert told[-1] == "mpich: ready"
    assert setup.unusable(peer, place) is None
    assert stat.S_IMODE(place.note.stat().st_mode) == 0o600

    setup.set_up(peer, place, tell=told.append)
    assert no_network == [["mpich"]]
    assert re.search(r"mpich: already installed \(python 3\.\d+, mpich [0-9.]+\)", told[-2])


def test_a_failure_is_told_and_remembered_and_tried_again(
    peer: Peer, place: Place, no_network: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
):
    def offline(place: Place, packages: Sequence[str]) -> None:
        raise UsageError("pip install: ERROR: no network")

    told: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(setup, "pip_install", offline)
        setup.set_up(peer, place, tell=told.append)
    assert told[-1] == "mpich: not installed: pip install: ERROR: no network"
    assert setup.unusable(peer, place) == "could not be installed: pip install: ERROR: no network"
    assert setup.set_up(peer, place, tell=told.append) is None


def test_what_was_never_set_up_or_for_other_packages(
    peer: Peer, place: Place, no_network: list[Sequence[str]]
):
    assert setup.unusable(peer, place) == "not set up; make collectives-setup installs it"
    setup.set_up(peer, place, tell=print)
    other = peer.model_copy(update={"packages": ["mpich", "numpy"]})
    assert str(setup.unusable(other, place)).startswith("set up for another version of this benchmark")


def test_every_package_is_pinned():
    pins = Path("constraints.txt").read_text().splitlines()
    for peer in load_peers():
        for package in (*peer.packages, *filter(None, [peer.build])):
            assert any(pin.startswith(f"{package}==") for pin in pins), package


def test_horovod_is_built_as_everywhere(
    peer: Peer, place: Place, no_network: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
):
    told: list[str] = []

    def build(target: Installation, *, tell: Callable[[str], None]) -> None:
        assert (target.prefix, target.python, target.mpiexec) == (place.folder, place.python, place.mpiexec)
        assert target.variables == {"ROOT": str(place.folder)}
        tell("compiling")

    monkeypatch.setattr(setup, "build_horovod", build)
    horovod = peer.model_copy(update={"build": "horovod", "kind": "torch", "variables": {"ROOT": "{prefix}"}})
    assert setup.set_up(horovod, place, tell=told.append) is None
    assert "mpich: compiling" in told


def test_the_ring_runs_where_dlscale_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (ring,) = choose_peers(["ring"])
    place = setup.place_of("ring", tmp_path)
    assert place.folder == Path(sys.prefix)
    monkeypatch.setattr(setup.importlib.util, "find_spec", lambda _: None)
    told: list[str] = []
    assert setup.set_up(ring, place, tell=told.append)
    assert told == ["ring: not installed: not built in this environment; dlscale doctor says why"]
    assert not place.note.exists()


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_settings_are_those_that_change_an_operation(collective):
    """Defaults matter to every operation; an algorithm of the allreduce to it alone."""
    peers = load_peers()
    for peer, chosen in zip(peers, choose_peers([one.name for one in peers], [collective]), strict=True):
        kept = {setting.name for setting in chosen.settings}
        assert kept >= {setting.name for setting in peer.settings if setting.default}
        assert all(
            (setting.name in kept) == (collective in (setting.operations or COLLECTIVES))
            for setting in peer.settings
        )
        variables = "".join(name for setting in chosen.settings for name in setting.variables)
        assert collective == "allreduce" or "allreduce" not in variables.lower()
