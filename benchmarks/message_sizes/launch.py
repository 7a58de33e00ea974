"""One launch of a library: what it is to measure, and its command line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dlscale.base import launchers
from dlscale.base.launchers import Flavour, flavour_of
from dlscale.benchmarks.message_sizes.cluster import Cluster
from dlscale.benchmarks.message_sizes.peers import OWN, Peer, PeerSetting, Place, peer_variables
from dlscale.benchmarks.records.message_sizes import Purpose, ReferenceTime

DRIVER = Path(__file__).with_name("driver")
IMB: Final = "IMB-MPI1"
# The ring's allreduce in memory of its own is measured in launches of its own, as users run it: in one process the
# messages of each would push the others' out of the caches.
RING_SHARED: Final = "ring-shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """One launch to make."""

    purpose: Purpose
    block: int
    peer: Peer
    setting: PeerSetting
    num_ranks: int
    sizes: Sequence[int]
    operations: Sequence[str]
    seconds: float = 1.0  # of timed calls, about
    limit_seconds: int = 600  # of its own, beside what it waits for its turns; then it is ended
    program: Literal["dlscale", "IMB-MPI1"] = "dlscale"
    reference: Path | None = None  # the IMB-MPI1

    @property
    def name(self) -> str:
        what = "" if self.program == "dlscale" else f", {self.program}"
        setting = "memory of its own" if RING_SHARED in self.operations else self.setting.name
        return f"{self.peer.title}, {setting}{what}, {self.num_ranks} ranks"


def command_of(
    order: LaunchOrder,
    place: Place,
    folder: Path,
    flags: Path,
    *,
    cpus: Sequence[int],
    num_together: int = 1,
    cluster: Cluster | None = None,
) -> list[str]:
    """The whole command line. The launch's own files lie in `folder`, the flags of its start line elsewhere.

    It takes turns with the others of the `num_together` launches that run at the same time.
    """
    begin = [
        *("-P", str(DRIVER), "--cpus", _listed(cpus), "--folder", str(folder)),
        *("--num-ranks", str(order.num_ranks)),
        *(["--ranks-per-node", str(cluster.ranks_per_node)] if cluster else []),
    ]
    program = [str(cluster.installation.python if cluster else place.python), *begin]
    if order.program == IMB:
        program = [sys.executable, *begin, *_imb(order, folder)]
    else:
        program += [
            *("--backend", "mpi" if order.peer.kind == "mpi" else order.peer.name),
            *("--operations", _listed(order.operations), "--thread-level", order.setting.thread_level),
            *("--sizes", _listed(order.sizes), "--seconds", f"{order.seconds:.2f}"),
            *("--limit", str(order.limit_seconds), "--turns", str(num_together)),
            *("--output", str(folder / "samples.jsonl"), "--flags", str(flags)),
            *("--store", str(folder / "store")),
        ]
    if cluster:
        return cluster.command(
            program,
            num_ranks=order.num_ranks,
            variables={"OMP_NUM_THREADS": "1", **order.setting.variables},
            num_cpus=len(cpus),
        )
    return launchers.mpiexec_here(
        flavour(order.peer, place),
        place.mpiexec,
        num_ranks=order.num_ranks,
        oversubscribed=order.num_ranks > len(cpus),
        variables=variables_of(order, place),
        program=program,
    )


def flavour(peer: Peer, place: Place) -> Flavour:
    """Which MPI's options a peer's mpiexec takes."""
    if peer.name in OWN and place.mpiexec.exists():
        done = subprocess.run(
            [place.mpiexec, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=60,
        )
        return flavour_of(done.stdout + done.stderr) or "mpich"
    own: dict[str, Flavour] = {"openmpi": "openmpi", "intelmpi": "intelmpi"}
    return own.get(peer.name, "mpich")


def variables_of(order: LaunchOrder, place: Place) -> dict[str, str]:
    """Environment variables of the ranks."""
    library_path = {"LD_LIBRARY_PATH": str(place.folder / "lib")} if order.program == IMB else {}
    return {
        "OMP_NUM_THREADS": "1",
        **library_path,
        **peer_variables(order.peer, place),
        **order.setting.variables,
    }


def _imb(order: LaunchOrder, folder: Path) -> list[str]:
    """IMB takes a barrier before each call, and makes as many calls as fit into its time."""
    lengths = folder / "lengths"
    lengths.write_text("".join(f"{size}\n" for size in order.sizes), encoding="ascii")
    return [
        *("--exec", str(order.reference), "-thread_level", order.setting.thread_level, "Allreduce"),
        *("-npmin", str(order.num_ranks), "-sync", "on", "-time", f"{order.seconds / len(order.sizes):.2f}"),
        # It cuts lengths off at 4 MiB unless told that there are longer ones.
        *("-msglog", f"0:{max(order.sizes).bit_length()}", "-msglen", str(lengths)),
    ]


def _listed(values: Sequence[int] | Sequence[str]) -> str:
    return ",".join(str(value) for value in values)


_IMB_LINE = re.compile(
    r"^[ \t]+([1-9]\d{0,17})[ \t]+([1-9]\d{0,17})[ \t]+[\d.]+[ \t]+(\d{1,15}(?:\.\d{1,15})?)[ \t]+[\d.]+[ \t]*$",
    re.MULTILINE,
)


def imb_times(text: str) -> list[ReferenceTime]:
    """From IMB's table: bytes (the line of 0 is left out), repetitions, t_min, t_max, t_avg in microseconds."""
    return [
        ReferenceTime(message_bytes=int(num_bytes), num_calls=int(num_calls), seconds=1e-6 * float(slowest))
        for num_bytes, num_calls, slowest in _IMB_LINE.findall(text)
    ]
