"""The libraries that are measured, as peers.toml describes them, and their environments on this node.

Each library but the ring has its own environment in .peers, because the wheels of MPIs overwrite each other's files.
Setting them up needs the network; measuring does not.
"""

from __future__ import annotations

import subprocess
import tomllib
import venv
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal

from pydantic import Field

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError, unknown
from dlscale.base.files import make_folder
from dlscale.base.launchers import Flavour
from dlscale.base.strings import Name, Text, redact
from dlscale.base.variables import BUILD, passed_on
from dlscale.benchmarks.horovod_build import build_horovod, checkout, pins
from dlscale.benchmarks.systems.start import Installation
from dlscale.collectives import with_capability

PEERS = Path(".peers")
BETWEEN_GPUS = with_capability("between_gpus")  # measured only where named: the others move the host's memory
# A study's backend `mpi` is the allreduce of the installed MPI; here each MPI has its own environment.
MPI_PEERS = ("mpich", "openmpi", "intelmpi")


class PeerSetting(Frozen):
    """Variables that a library is started with."""

    name: Text
    variables: dict[Text, Text] = {}
    thread_level: Literal["single", "multiple"] = "single"


class Peer(Frozen):
    """A library with collective operations; its kind is how it is called, and what records call it."""

    name: Name
    title: Text
    kind: Literal["ring", "mpi", "torch"]
    mpi: Flavour = "mpich"  # whose mpiexec starts its ranks
    packages: list[Text] = []  # none: it is measured in the environment that this program runs in
    variables: dict[Text, Text] = {}  # at every setting; {prefix} is the environment's folder
    rests: bool = True  # between operations; false: its threads look for work then, too, beside others' work
    settings: list[PeerSetting] = Field(min_length=1)

    def installation(self) -> Installation:
        """Its environment on this node, whether it is there or not."""
        prefix = (PEERS / self.name).absolute()
        return Installation(
            name=self.name,
            mpi=self.mpi,
            prefix=prefix,
            python=prefix / "bin" / "python",
            mpiexec=prefix / "bin" / "mpiexec",
            variables={name: value.format(prefix=prefix) for name, value in self.variables.items()},
        )

    def versions(self) -> dict[str, str]:
        """The versions of its packages that are installed in its environment."""
        folders = self.installation().prefix.glob("lib/python3*/site-packages")
        found = {
            it.name.replace("_", "-"): it.version for it in metadata.distributions(path=[*map(str, folders)])
        }
        return {name: found[name] for name in self.packages if name in found}

    def unusable(self) -> str | None:
        """Why its environment cannot be used; None if it can."""
        versions = self.versions()
        missing = [name for name in self.packages if name not in versions]
        return f"no {', '.join(missing)}; make collectives-setup installs it" if missing else None


def load_peers(table: Literal["peers", "between_nodes"] = "peers") -> list[Peer]:
    """A table of peers.toml, in its order."""
    rows = tomllib.loads(Path(__file__).with_name("peers.toml").read_text("utf-8"))[table]
    return [Peer.model_validate(row) for row in rows]


def choose_peers(names: Sequence[str], *, between_nodes: bool = False) -> list[Peer]:
    """The peers with these names: `all` that are not between GPUs, `mpi` every MPI of one node.

    Raises UsageError for an unknown name.
    """
    peers = load_peers("between_nodes" if between_nodes else "peers")
    known = {peer.name: (peer.name,) for peer in peers}
    words = {"mpi": MPI_PEERS, **known, "all": tuple(name for name in known if name not in BETWEEN_GPUS)}
    for name in names:
        if name not in words:
            raise UsageError(unknown("backend", name, known, where="in this benchmark"))
    chosen = {peer for name in names for peer in words[name]}
    return [peer for peer in peers if peer.name in chosen]


def set_up(peer: Peer, *, tell: Callable[[str], None]) -> str | None:
    """Make the peer's environment, unless it has all that is pinned. Returns why it cannot be used; None if it can.

    `tell` is called with a line before each step.
    """
    failure, target = None, peer.installation()
    installed = {name: version.partition("+")[0] for name, version in peer.versions().items()}  # 2.13.0+cpu
    if installed != {name: version for name, version in pins().items() if name in peer.packages}:
        packages = [name for name in peer.packages if name != "horovod"]
        tell(f"{peer.name}: installing {', '.join(packages)}")
        try:
            make_folder(target.prefix.parent)
            venv.create(target.prefix, with_pip=True, clear=True)
            done = subprocess.run(
                [target.python, "-P", "-m", "pip", "install", "--quiet", *packages],
                check=False,
                env=passed_on(BUILD) | {"PIP_CONSTRAINT": str(checkout() / "constraints.txt")},
            )
            if done.returncode != 0:
                raise UsageError("pip install failed, and its output says why")
            if "horovod" in peer.packages:
                build_horovod(target, tell=lambda text: tell(f"{peer.name}: {text}"))
        except (UsageError, OSError, subprocess.SubprocessError) as error:
            failure = " ".join(redact(str(error)).split())
    tell(f"{peer.name}: {f'not installed: {failure}' if failure else 'ready'}")
    return failure
