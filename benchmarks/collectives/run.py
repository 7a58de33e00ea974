"""A run of the benchmark: from what was asked for to a folder of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dlscale.benchmarks import environment
from dlscale.benchmarks.collectives import launch, machine, plan, setup, tuning
from dlscale.benchmarks.collectives.command import Order
from dlscale.benchmarks.collectives.peers import RING, Peer, choose_peers, place_of
from dlscale.benchmarks.collectives.program import compile_program
from dlscale.benchmarks.collectives.record import MODES, Campaign, Chosen, Launch, PeerState
from dlscale.benchmarks.collectives.record_files import add_launch, write_campaign
from dlscale.benchmarks.supervisor import now
from dlscale.models.errors import UsageError

IMB = "IMB-MPI1"
SPEAKS_ITS_ABI = ("mpich", "intelmpi")  # the program in Intel's wheel runs over these
# A part of a run: its name, its launches, and a function to call for each before it starts and when it has ended.
Watcher = Callable[[str, Sequence[Order]], "Display"]


class Display:
    """Hears how a part of a run goes on; this one says nothing."""

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def started(self, order: Order) -> None:
        """A launch begins."""

    def finished(self, order: Order, record: Launch) -> None:
        """It has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
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

    def __init__(self, request: Request, *, tell: Callable[[str], None]) -> None:
        self._request, self._tell = request, tell
        self._cpus = machine.cpus()
        self._cold_bytes = 2 * machine.last_level_cache_bytes(self._cpus[0])
        self._peers = _with_host(request.backends)
        self._position = 0
        self.folder = Path()
        self.campaign: Campaign | None = None
        self._wanted = plan.Wanted(
            sizes=request.sizes,
            modes=MODES,
            num_blocks=request.num_blocks,
            seed=request.seed,
            num_cpus=len(self._cpus),
            ring=bool({"all", RING} & set(request.backends)),
        )

    def prepare(self, results: Path) -> Campaign:
        """The programs are compiled and the folder exists. Raises UsageError if nothing can be measured."""
        request = self._request
        for num_ranks in request.rank_counts:
            machine.check_memory(num_ranks, max(request.sizes), self._cold_bytes)
        states = [self._state(peer) for peer in self._peers]
        if all(state.unusable for state in states):
            reasons = "; ".join(f"{state.name}: {state.unusable}" for state in states)
            raise UsageError(f"nothing can be measured ({reasons})")
        started = datetime.now(UTC)
        self.campaign = Campaign(
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
            node=machine.describe(),
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
        crowded_budget = plan.CROWDED_SHARE * budget if free else budget
        for num_ranks in free:
            share = (budget - (crowded_budget if crowded else 0)) / len(free)
            self._measure_count(peers, num_ranks, share, watch)
        for num_ranks in crowded:
            choices = [(peer, one) for peer in peers for one in peer.settings if one.default]
            orders = plan.measurement(self._wanted, choices, num_ranks, crowded_budget / len(crowded))
            self._run(f"measuring on {num_ranks} ranks that share CPUs", orders, watch)

    def _measure_count(self, peers: Sequence[Peer], num_ranks: int, budget: float, watch: Watcher) -> None:
        wanted = self._wanted
        sweep = plan.sweep(wanted, peers, num_ranks, plan.TUNING_SHARE * budget)
        tried = self._run("choosing settings", sweep, watch)
        choices = [(peer, setting) for peer in peers for setting in tuning.choose(peer, tried)]
        self._note(choices, tried)
        checks = plan.validity(wanted, choices, self._references(), num_ranks, plan.VALIDITY_SHARE * budget)
        share = 1 - plan.TUNING_SHARE - (plan.VALIDITY_SHARE if checks else 0)
        self._run("measuring", plan.measurement(wanted, choices, num_ranks, share * budget), watch)
        self._run(f"comparing with {IMB}", checks, watch)

    def _run(self, title: str, orders: Sequence[Order], watch: Watcher) -> list[Launch]:
        records: list[Launch] = []
        with watch(title, orders) as display:
            for order in orders:
                display.started(order)
                record = launch.run(
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

    def _note(self, choices: Sequence[plan.Choice], tried: Sequence[Launch]) -> None:
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
