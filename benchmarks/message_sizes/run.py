"""A run of the message-size benchmark: from a request to a folder of records.

It says also what this machine has (CPUs, caches, memory), and refuses sizes that its memory cannot hold.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_size
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.supervisor import now
from dlscale.benchmarks.message_sizes import launch, schedule, setup
from dlscale.benchmarks.message_sizes.launch import LaunchOrder
from dlscale.benchmarks.message_sizes.peers import RING, Peer, choose_peers, compile_program, place_of
from dlscale.benchmarks.records.message_sizes import (
    MODES,
    Chosen,
    MessageSizeLaunch,
    MessageSizeRun,
    PeerState,
    add_launch,
    write_campaign,
)
from dlscale.benchmarks.records.record import Setting

_CACHES = Path("/sys/devices/system/cpu")
_UNKNOWN_CACHE = 64 * 2**20
_ARENAS = 2  # a process has its own memory and, for the ring, as much of the node's


def usable_cpus() -> list[int]:
    """The CPUs that a run may use, ascending; of two threads of a core only the first."""
    allowed = sorted(os.sched_getaffinity(0))
    firsts = {cpu: _first_sibling(cpu) for cpu in allowed}
    return [cpu for cpu in allowed if firsts[cpu] == cpu or firsts[cpu] not in allowed]


def last_level_cache_bytes(cpu: int = 0) -> int:
    """The largest cache that a CPU has a share in."""
    texts = (path.read_text("ascii").strip() for path in _CACHES.glob(f"cpu{cpu}/cache/index*/size"))
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = (int(text[:-1]) * units[text[-1]] for text in texts if re.fullmatch(r"\d+[KMG]", text))
    return max(sizes, default=_UNKNOWN_CACHE)


def describe_machine() -> dict[str, Setting]:
    """Facts that numbers of this benchmark depend on."""
    cpu_info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*: (.*)$", cpu_info, re.MULTILINE)
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "architecture": platform.machine(),
        "cpu_model": model[1] if model else "unknown",
        "num_cpus": len(os.sched_getaffinity(0)),
        "num_cores": len(usable_cpus()),
        "last_level_cache_bytes": last_level_cache_bytes(usable_cpus()[0]),
        "memory_gib": round(_memory("MemTotal") / 2**30),
        "kernel": platform.release(),
        "transparent_huge_pages": _chosen(pages.read_text(encoding="ascii")) if pages.exists() else "none",
    }


def check_memory(num_ranks: int, largest: int, cold_bytes: int) -> None:
    """Returns if the buffers fit into half of what is free. Raises UsageError."""
    needed = num_ranks * _ARENAS * (largest + max(largest, cold_bytes))
    free = _memory("MemAvailable")
    if needed > free / 2:
        raise UsageError(
            f"messages of {format_size(largest)} on {num_ranks} ranks need {format_size(needed)} of memory, and "
            f"{format_size(free)} are free; give smaller sizes, for instance --sizes 4KiB:16MiB:x4"
        )


def _memory(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/meminfo").read_text("ascii"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _first_sibling(cpu: int) -> int:
    path = _CACHES / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    try:
        return int(re.split("[,-]", path.read_text(encoding="ascii").strip())[0])
    except (OSError, ValueError):
        return cpu


def _chosen(text: str) -> str:
    """The word in brackets, as the kernel shows a choice."""
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found else text.strip()


IMB = "IMB-MPI1"
SPEAKS_ITS_ABI = ("mpich", "intelmpi")  # the program in Intel's wheel runs over these
# A part of a run: its name, its launches, and a function to call for each before it starts and when it has ended.
Watcher = Callable[[str, Sequence[LaunchOrder]], "Display"]


class Display:
    """Hears how a part of a run goes on; this one says nothing."""

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def started(self, order: LaunchOrder) -> None:
        """A launch begins."""

    def finished(self, order: LaunchOrder, record: MessageSizeLaunch) -> None:
        """It has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a user asked for, checked."""

    sizes: Sequence[int]
    rank_counts: Sequence[int]
    backends: Sequence[str]
    num_blocks: int
    budget_seconds: float
    seed: int
    environments: Path  # the peers' folder
    references: Mapping[str, Path]  # IMB-MPI1 built for a peer's MPI


class Run:
    """One run. `prepare` says what can be measured, `measure` does it."""

    def __init__(self, request: RunRequest, *, tell: Callable[[str], None]) -> None:
        self._request, self._tell = request, tell
        self._cpus = usable_cpus()
        self._cold_bytes = 2 * last_level_cache_bytes(self._cpus[0])
        self._peers = _with_host(request.backends)
        self._position = 0
        self.folder = Path()
        self.campaign: MessageSizeRun | None = None
        self._wanted = schedule.Wanted(
            sizes=request.sizes,
            modes=MODES,
            num_blocks=request.num_blocks,
            seed=request.seed,
            num_cpus=len(self._cpus),
            ring=bool({"all", RING} & set(request.backends)),
        )

    def prepare(self, results: Path) -> MessageSizeRun:
        """The programs are compiled and the folder exists. Raises UsageError if nothing can be measured."""
        request = self._request
        for num_ranks in request.rank_counts:
            check_memory(num_ranks, max(request.sizes), self._cold_bytes)
        states = [self._state(peer) for peer in self._peers]
        if all(state.unusable for state in states):
            reasons = "; ".join(f"{state.name}: {state.unusable}" for state in states)
            raise UsageError(f"nothing can be measured ({reasons})")
        started = datetime.now(UTC)
        self.campaign = MessageSizeRun(
            started=now(),
            commit=environment.commit(),
            sizes=list(request.sizes),
            rank_counts=list(request.rank_counts),
            modes=list(self._wanted.modes),
            num_blocks=request.num_blocks,
            cold_bytes=self._cold_bytes,
            cpus=self._cpus,
            budget_seconds=request.budget_seconds,
            seed=request.seed,
            node=describe_machine(),
            peers=states,
        )
        self.folder = results / "collectives" / started.strftime("%Y%m%dT%H%M%SZ")
        write_campaign(self.folder, self.campaign)
        return self.campaign

    def measure(self, watch: Watcher) -> None:
        """All three parts, for every number of ranks; what was finished is kept whatever happens."""
        if self.campaign is None:
            raise ValueError("prepare first")
        usable = {state.name for state in self.campaign.peers if state.unusable is None}
        peers = [peer for peer in self._peers if peer.name in usable]
        counts = self._request.rank_counts
        crowded = [count for count in counts if self._wanted.crowded(count)]
        free = [count for count in counts if count not in crowded]
        budget = self._request.budget_seconds
        crowded_budget = schedule.CROWDED_SHARE * budget if free else budget
        for num_ranks in free:
            share = (budget - (crowded_budget if crowded else 0)) / len(free)
            self._measure_count(peers, num_ranks, share, watch)
        for num_ranks in crowded:
            choices = [(peer, one) for peer in peers for one in peer.settings if one.default]
            orders = schedule.measurement(self._wanted, choices, num_ranks, crowded_budget / len(crowded))
            self._run(f"measuring on {num_ranks} ranks that share CPUs", orders, watch)

    def _measure_count(self, peers: Sequence[Peer], num_ranks: int, budget: float, watch: Watcher) -> None:
        wanted = self._wanted
        sweep = schedule.sweep(wanted, peers, num_ranks, schedule.TUNING_SHARE * budget)
        tried = self._run("choosing settings", sweep, watch)
        choices = [(peer, setting) for peer in peers for setting in schedule.choose_settings(peer, tried)]
        self._note(choices, tried)
        checks = schedule.validity(
            wanted, choices, self._references(), num_ranks, schedule.VALIDITY_SHARE * budget
        )
        share = 1 - schedule.TUNING_SHARE - (schedule.VALIDITY_SHARE if checks else 0)
        self._run("measuring", schedule.measurement(wanted, choices, num_ranks, share * budget), watch)
        self._run(f"comparing with {IMB}", checks, watch)

    def _run(self, title: str, orders: Sequence[LaunchOrder], watch: Watcher) -> list[MessageSizeLaunch]:
        records: list[MessageSizeLaunch] = []
        with watch(title, orders) as display:
            for order in orders:
                display.started(order)
                record = launch.run_launch(
                    order,
                    place_of(order.peer.name, self._request.environments),
                    position=self._position,
                    cpus=self._cpus,
                    cold_bytes=self._cold_bytes,
                )
                self._position += 1
                add_launch(self.folder, record)
                records.append(record)
                display.finished(order, record)
        return records

    def _state(self, peer: Peer) -> PeerState:
        place = place_of(peer.name, self._request.environments)
        unusable = setup.unusable(peer, place)
        if unusable is None and peer.kind == "mpi":
            self._tell(f"compiling the benchmark with the mpicxx of {peer.title}")
            try:
                compile_program(peer, place)
            except UsageError as error:
                unusable = str(error)
        note = setup.read_note(place)
        return PeerState(
            name=peer.name,
            title=peer.title,
            kind=peer.kind,
            versions=note.versions if note else {},
            unusable=unusable,
        )

    def _note(self, choices: Sequence[schedule.Choice], tried: Sequence[MessageSizeLaunch]) -> None:
        if self.campaign is None:
            return
        chosen = {
            peer.name: Chosen(
                backend=peer.name,
                settings=[setting.name for one, setting in choices if one is peer],
                num_tried=sum(record.backend == peer.name for record in tried),
            )
            for peer, _ in choices
        }
        before = [one for one in self.campaign.chosen if one.backend not in chosen]
        self.campaign = self.campaign.model_copy(update={"chosen": [*before, *chosen.values()]})
        write_campaign(self.folder, self.campaign)

    def _references(self) -> dict[str, Path]:
        """IMB-MPI1 for each MPI: what the user built, or that of Intel's wheel where it speaks the MPI's ABI."""
        found = dict(self._request.references)
        wheel = place_of("intelmpi", self._request.environments).folder / "bin" / IMB
        for name in SPEAKS_ITS_ABI:
            if wheel.exists():
                found.setdefault(name, wheel)
        return found


def _with_host(backends: Sequence[str]) -> list[Peer]:
    """The peers asked for; the ring needs an MPI's program to run in, that of MPICH if no other was asked for."""
    peers = choose_peers(backends)
    if RING in backends and not any(peer.kind == "mpi" for peer in peers):
        host = choose_peers(["mpich"])[0]
        peers = [host.model_copy(update={"settings": host.settings[:1]}), *peers]
    return peers
