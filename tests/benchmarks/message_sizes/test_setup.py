"""Setting peers up: each step told, nothing done twice, and a failure told with its reason."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from dlscale.benchmarks.cli import main
from dlscale.benchmarks.message_sizes import peers
from dlscale.benchmarks.message_sizes.peers import choose_peers, load_peers
from dlscale.benchmarks.systems.start import Installation

Setup = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Setup:
    """setup(backend): exit status and lines; pip installs empty packages, or fails with `complaint`."""

    def run(backend: str, complaint: str = "") -> tuple[int, list[str]]:
        def pip(command: list[Any], **options: Any) -> CompletedProcess[str]:
            assert options["env"]["PIP_CONSTRAINT"].endswith("constraints.txt")
            for name in command[command.index("--quiet") + 1 :] if not complaint else ():
                add(Path(command[0]).parents[1], name)
            return CompletedProcess(command, bool(complaint), "", complaint)

        def add(prefix: Path, name: str) -> None:
            folder = prefix / "lib/python3.11/site-packages" / f"{name}-1.dist-info"
            folder.mkdir(parents=True)
            local = "+cpu" if name == "torch" else ""
            (folder / "METADATA").write_text(f"Name: {name}\nVersion: {peers.pins()[name]}{local}\n")

        def build(target: Installation, *, tell: Callable[[str], None]) -> None:
            tell("compiling")
            add(target.prefix, "horovod")

        monkeypatch.setattr(peers, "PEERS", tmp_path)
        monkeypatch.setattr(peers.subprocess, "run", pip)
        monkeypatch.setattr(peers.venv, "create", lambda folder, **_: folder.mkdir(exist_ok=True))
        monkeypatch.setattr(peers, "build_horovod", build)
        with pytest.raises(SystemExit) as ended:
            main(["collectives", "setup", "--backends", backend])
        return int(ended.value.code or 0), capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize("backend", ["intelmpi", "horovod"])
def test_a_second_time_nothing_is_installed(setup: Setup, backend: str):
    (peer,) = choose_peers([backend])
    assert str(peer.unusable()).endswith("make collectives-setup installs it")
    status, told = setup(backend)
    listed = ", ".join(name for name in peer.packages if name != "horovod")
    assert (status, told[0], told[-1]) == (0, f"{backend}: installing {listed}", f"{backend}: ready")
    assert ("horovod: compiling" in told) == (backend == "horovod")
    assert peer.unusable() is None
    assert set(peer.versions()) == set(peer.packages)
    assert setup(backend, "no network") == (0, [f"{backend}: ready"])


def test_a_failure_is_told_and_tried_again(setup: Setup):
    status, told = setup("mpich", "no network")
    assert (status, told[-2:]) == (
        2,
        [
            "mpich: not installed: pip install failed, and its output says why",
            "not installed: MPICH (see the errors above)",
        ],
    )
    assert setup("mpich")[0] == 0


def test_every_package_is_pinned():
    for peer in load_peers():
        assert set(peer.packages) <= set(peers.pins()), peer.name


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        # Libraries between GPUs only where they are named.
        ("all", ["ring", "mpich", "openmpi", "intelmpi", "gloo", "horovod"]),
        ("gloo", ["gloo"]),
        ("mpi", ["mpich", "openmpi", "intelmpi"]),  # a study's name
    ],
)
def test_peers_of_a_name(asked: str, found: list[str]):
    assert [peer.name for peer in choose_peers([asked])] == found
