"""The libraries that are measured, as peers.toml describes them, and their environments.

Each library but the ring has an environment of its own, because the wheels of MPIs overwrite each other's files.
Setting them up needs the network; measuring does not.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError, unknown
from dlscale.base.files import make_folder, read_regular, write_atomically
from dlscale.base.redaction import redact
from dlscale.base.strings import Name, Text
from dlscale.base.variables import BUILD, passed_on
from dlscale.benchmarks.horovod_build import RECIPE as HOROVOD_RECIPE
from dlscale.benchmarks.horovod_build import build_horovod, pins
from dlscale.benchmarks.launch.probe import SeenGpus
from dlscale.benchmarks.records.collective_operations import COLLECTIVES
from dlscale.benchmarks.records.message_sizes import Collective
from dlscale.benchmarks.systems.start import Installation
from dlscale.collectives import with_capability
from dlscale.collectives.registry import unavailable_because

RING = "ring"
BETWEEN_GPUS = with_capability("between_gpus")  # only where named: the others move the host's memory
OWN = (RING, *BETWEEN_GPUS)  # measured in the environment that this program runs in
PIP_SECONDS = 1800
ThreadLevel = Literal["single", "multiple"]


class PeerSetting(Frozen):
    """Variables that a library is started with. Defaults are always measured, others if trials pick them."""

    name: Text
    operations: list[Collective] = []  # the only ones that the variables change; none named: all
    variables: dict[Text, Text] = {}
    thread_level: ThreadLevel = "single"
    default: bool = False


class Peer(Frozen):
    """A library with an allreduce; its kind is how it is called, and what records call it."""

    name: Name
    title: Text
    kind: Literal["ring", "mpi", "torch"]
    packages: list[Text] = []
    build: Literal["horovod"] | None = None  # made from source after the packages are there
    variables: dict[Text, Text] = {}  # at every setting; {prefix} is the environment's folder
    rests: bool = True  # between operations; false: its threads look for work then, too, beside others' work
    settings: list[PeerSetting] = Field(min_length=1)


def load_peers(table: Literal["peers", "between_nodes"] = "peers") -> list[Peer]:
    """A table of peers.toml, in its order."""
    rows = tomllib.loads(Path(__file__).with_name("peers.toml").read_text("utf-8"))[table]
    return [Peer.model_validate(row) for row in rows]


def named_peers(
    peers: Sequence[Peer], names: Sequence[str], left_out: Sequence[str] = BETWEEN_GPUS, *, where: str
) -> list[Peer]:
    """The peers with these names; for `all` every one but those `left_out`. Raises UsageError for an unknown name."""
    known = [peer.name for peer in peers]
    for name in names:
        if name not in ("all", *known):
            raise UsageError(unknown("backend", name, known, where=where))
    return [peer for peer in peers if peer.name in names or ("all" in names and peer.name not in left_out)]


# A study's backend `mpi` is the allreduce of the installed MPI; here each MPI is measured in an environment of its own.
MPI_PEERS = ("mpich", "openmpi", "intelmpi")


def choose_peers(names: Sequence[str], collectives: Sequence[Collective] = COLLECTIVES) -> list[Peer]:
    """The peers of one node with these names, `mpi` for every MPI, with settings that matter to `collectives`.

    Raises UsageError for an unknown name.
    """
    names = [peer for name in names for peer in (MPI_PEERS if name == "mpi" else (name,))]
    given = set(collectives)
    return [
        peer.model_copy(
            update={"settings": [it for it in peer.settings if given & set(it.operations or given)]}
        )
        for peer in named_peers(load_peers(), names, where="in this benchmark")
    ]


@dataclass(frozen=True, slots=True)
class Place:
    """A library's environment, with a note beside it of how setting it up ended (`Note`)."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def mpiexec(self) -> Path:
        return self.folder / "bin" / "mpiexec"

    @property
    def note(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.json")


def place_of(peer: str, folder: Path) -> Place:
    """Where a peer's environment lies or will lie; that of `OWN` is the one that this program runs in."""
    return Place(Path(sys.prefix)) if peer in OWN else Place(folder.absolute() / peer)


def peer_variables(peer: Peer, place: Place) -> dict[str, str]:
    """The variables that a peer needs at every setting."""
    return {name: value.format(prefix=place.folder) for name, value in peer.variables.items()}


class Note(Frozen):
    """What setting up an environment ended with; `failure` says why it cannot be used."""

    versions: dict[Text, Text]  # that were asked for
    failure: Text | None = None


def read_note(place: Place) -> Note | None:
    """The note beside an environment; None if there is none."""
    try:
        return Note.model_validate_json(read_regular(place.note))
    except (OSError, ValidationError):
        return None


def unusable(peer: Peer, place: Place) -> str | None:
    """Why a peer cannot be measured; None if it can."""
    folder, note = redact(str(place.folder)), read_note(place)
    if peer.name in OWN:
        if peer.name == RING and importlib.util.find_spec("dlscale.collectives.ring._engine") is None:
            return "not built in this environment; dlscale doctor says why"
        if peer.name != RING and (reason := unavailable_because(peer.name, "torch")):
            return reason
        return None if place.mpiexec.exists() else f"no mpiexec in {folder}, which starts its ranks"
    if note is None:
        return "not set up; make collectives-setup installs it"
    if note.failure:
        return f"could not be installed: {note.failure}"
    if not place.python.exists():
        return f"its environment {folder} is gone; run make collectives-setup"
    if note.versions != _wanted(peer):
        return "set up for another version of this benchmark; run make collectives-setup"
    return None


def _wanted(peer: Peer) -> dict[str, str]:
    """What is to be installed: the Python, packages and their pinned versions, and the way of building."""
    pinned = pins()
    names = (*peer.packages, *filter(None, [peer.build]))
    own = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    return {
        **own,
        **{name: pinned.get(name, "") for name in names},
        **({"recipe": str(HOROVOD_RECIPE)} if peer.build else {}),
    }


def with_libraries(
    peers: Sequence[Peer], ranks_per_node: int, see: Callable[[], list[SeenGpus]]
) -> list[Peer]:
    """The peers; one between GPUs has the name of what torch calls so, NCCL or RCCL, and its version.

    Raises UsageError if a rank of a node would have no GPU of its own.
    """
    if not any(peer.name in BETWEEN_GPUS for peer in peers):
        return list(peers)
    (gpus,) = see()
    num_gpus = len(gpus.names)
    if 0 < num_gpus < ranks_per_node:
        raise UsageError(
            f"{ranks_per_node} ranks on a node were asked for, and torch sees {num_gpus} GPUs, one each for "
            f"{gpus.library}; give at most --ranks {num_gpus}"
        )
    named = {"title": f"{gpus.library} (torch.distributed)"}
    return [peer.model_copy(update=named) if peer.name == gpus.backend else peer for peer in peers]


def set_up(peer: Peer, place: Place, *, tell: Callable[[str], None]) -> str | None:
    """Make the peer's environment, unless it is there. Returns why it cannot be used; None if it can.

    `tell` is called with a line before each step.
    """
    failure = unusable(peer, place)
    if peer.name not in OWN:
        versions = _wanted(peer)
        if failure is None:
            listed = ", ".join(f"{name} {version}" for name, version in versions.items())
            tell(f"{peer.name}: already installed ({listed})")
        else:
            make_folder(place.folder.parent)
            try:
                failure = None
                _install(peer, place, lambda text: tell(f"{peer.name}: {text}"))
            except (UsageError, OSError, subprocess.SubprocessError) as error:
                failure = " ".join(redact(str(error)).split())
            write_atomically(place.note, Note(versions=versions, failure=failure).model_dump_json())
    tell(f"{peer.name}: {f'not installed: {failure}' if failure else 'ready'}")
    return failure


def _install(peer: Peer, place: Place, tell: Callable[[str], None]) -> None:
    tell("creating its environment")
    venv.create(place.folder, with_pip=True, clear=True)
    tell(f"installing {', '.join(peer.packages)}")
    pip_install(place, peer.packages)
    if peer.build == "horovod":
        target = Installation(
            name=peer.name,
            mpi="detect",
            prefix=place.folder,
            python=place.python,
            mpiexec=place.mpiexec,
            variables=peer_variables(peer, place),
        )
        build_horovod(target, tell=tell)


def pip_install(place: Place, packages: Sequence[str]) -> None:
    """Install into an environment, by the project's constraints. Raises UsageError with pip's last error."""
    constraints = Path(__file__).resolve().parents[2] / "constraints.txt"
    done = subprocess.run(
        [place.python, "-P", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *packages],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=passed_on(BUILD) | ({"PIP_CONSTRAINT": str(constraints)} if constraints.is_file() else {}),
        timeout=PIP_SECONDS,
    )
    if done.returncode != 0:
        output = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["it printed nothing"]
        errors = [line for line in output if line.startswith("ERROR")] or output[-3:]
        raise UsageError(f"pip install: {' / '.join(errors)}")
