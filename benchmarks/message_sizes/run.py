"""A run of the message-size benchmark: from a request to a folder of records.

It refuses sizes that the machine's memory cannot hold.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds, format_size
from dlscale.benchmarks.launch import gpus
from dlscale.benchmarks.launch.probe import commit, describe_node
from dlscale.benchmarks.launch.supervisor import now
from dlscale.benchmarks.message_sizes import schedule, together
from dlscale.benchmarks.message_sizes.cluster import Cluster, cluster_peers, cluster_unusable
from dlscale.benchmarks.message_sizes.launch import IMB, LaunchOrder
from dlscale.benchmarks.message_sizes.peers import (
    Peer,
    choose_peers,
    place_of,
    read_note,
    unusable,
    with_libraries,
)
from dlscale.benchmarks.message_sizes.schedule import Part
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.message_sizes import (
    Chosen,
    Collective,
    MessageSizeLaunch,
    MessageSizeRun,
    PeerState,
    add_launch,
    write_campaign,
)
from dlscale.benchmarks.records.nodes import node_facts

_CPUS = Path("/sys/devices/system/cpu")
_MESSAGES = 2  # of the largest size, for some operations: the one that is moved, and where its result goes
SPEAKS_ITS_ABI = ("mpich", "intelmpi")  # the IMB-MPI1 in Intel's wheel runs over these
Tell = Callable[[str], None]


def usable_cpus() -> list[int]:
    """The CPUs that a run may use, ascending; of two threads of a core only the first."""
    allowed = sorted(os.sched_getaffinity(0))
    firsts = {cpu: _first_sibling(cpu) for cpu in allowed}
    return [cpu for cpu in allowed if firsts[cpu] == cpu or firsts[cpu] not in allowed]


def _machine(cpus: Sequence[int], results: Path) -> dict[str, Setting]:
    """Facts that numbers of this benchmark depend on."""
    facts = node_facts(results=results, data=None)
    return {
        **describe_node(),
        "num_cpus": len(os.sched_getaffinity(0)),
        "num_cores": len(cpus),
        "cache_bytes": facts.cache_bytes or 0,
        "transparent_huge_pages": facts.transparent_huge_pages or "none",
    }


def most_together(num_ranks: int, largest: int) -> int:
    """How many launches may run at the same time. Raises UsageError if memory does not hold the messages of one.

    The ranks of one may use half of the memory that is free, and of all two thirds.
    """
    needed = num_ranks * _MESSAGES * largest
    free = psutil.virtual_memory().available
    if needed > free / 2:
        raise UsageError(
            f"messages of {format_size(largest)} on {num_ranks} ranks need {format_size(needed)} of memory, and "
            f"{format_size(free)} are free; give smaller sizes, for instance --sizes 4KiB:16MiB:x4"
        )
    return max(1, int(free * 2 / 3 / (num_ranks * largest)))


def _first_sibling(cpu: int) -> int:
    path = _CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    try:
        return int(re.split("[,-]", path.read_text(encoding="ascii").strip())[0])
    except (OSError, ValueError):
        return cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a user asked for, checked."""

    sizes: Sequence[int]
    collectives: Sequence[Collective] = ("allreduce",)
    rank_counts: Sequence[int]
    backends: Sequence[str]
    num_blocks: int
    budget_seconds: float
    seed: int
    environments: Path  # the peers' folder
    references: Mapping[str, Path]  # IMB-MPI1 built for a peer's MPI
    cluster: Cluster | None = None  # several nodes, and rank counts that fill some of them
    allow_open_ports: bool = False


class Run:
    """One run: `prepare` checks what can be measured, `measure` does it.

    `tell` is called with what a user must know, `progress` with a line before each launch.
    """

    def __init__(
        self, request: RunRequest, *, tell: Tell, progress: Tell, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._request, self._tell, self._progress, self._clock = request, tell, progress, clock
        self._cpus = usable_cpus()
        self._cluster = request.cluster
        if self._cluster:
            self._peers = cluster_peers(
                request.backends, self._cluster.report, allow_open_ports=request.allow_open_ports
            )
        else:
            self._peers = choose_peers(request.backends, request.collectives)
        self._position = 0
        self._most_together: dict[int, int] = {}  # launches, by number of ranks
        self.folder = Path()
        self._campaign: MessageSizeRun | None = None
        self._sweep = schedule.SweepRequest(
            sizes=request.sizes,
            num_blocks=request.num_blocks,
            seed=request.seed,
            collectives=request.collectives,
            several_nodes=request.cluster is not None,
        )

    def prepare(self, results: Path) -> MessageSizeRun:
        """The folder with what is to be measured. Raises UsageError if nothing can be."""
        request = self._request
        for num_ranks in request.rank_counts:
            per_node = self._cluster.ranks_per_node if self._cluster else num_ranks
            self._peers = with_libraries(self._peers, per_node, self._see_gpus)
            most = most_together(per_node, max(request.sizes))
            self._most_together[num_ranks] = most
        states = [self._state(peer) for peer in self._peers]
        if all(state.unusable for state in states):
            reasons = "; ".join(f"{state.name}: {state.unusable}" for state in states)
            raise UsageError(f"nothing can be measured ({reasons})")
        self._campaign = MessageSizeRun(
            started=now(),
            commit=commit(),
            collectives=list(request.collectives),
            system=self._cluster.system.title if self._cluster else None,
            nodes=list(self._cluster.nodes) if self._cluster else [],
            ranks_per_node=self._cluster.ranks_per_node if self._cluster else None,
            wire_bytes_per_second=self._cluster.wire_bytes_per_second if self._cluster else None,
            sizes=list(request.sizes),
            rank_counts=list(request.rank_counts),
            num_blocks=request.num_blocks,
            cpus=self._cpus,
            budget_seconds=request.budget_seconds,
            seed=request.seed,
            node=_machine(self._cpus, results),
            peers=states,
        )
        self.folder = results / "collectives" / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        write_campaign(self.folder, self._campaign)
        return self._campaign

    def measure(self) -> None:
        """Everything, for every number of ranks, within the budget; finished launches are kept whatever happens."""
        if self._campaign is None:
            raise ValueError("prepare first")
        peers = [
            peer
            for peer, state in zip(self._peers, self._campaign.peers, strict=True)
            if state.unusable is None
        ]
        budget = schedule.Budget(self._request.budget_seconds, self._clock)
        counts = sorted(self._request.rank_counts, key=self._oversubscribed)
        weights = [schedule.OVERSUBSCRIBED_WEIGHT if self._oversubscribed(count) else 1.0 for count in counts]
        for index in range(len(counts)):
            # Of what is left of the budget: the seconds of each number of ranks, and those after it.
            spans = [budget.left * weight / sum(weights[index:]) for weight in weights[index:]]
            ends = [sum(spans[position + 1 :]) for position in range(len(spans))]
            first, *others = zip(counts[index:], ends, spans, strict=True)
            later = [part for count in others for part in self._parts(peers, *count)]
            self._measure_count(peers, *first, budget=budget, later=later)

    def _oversubscribed(self, num_ranks: int) -> bool:
        """Whether ranks share CPUs."""
        return num_ranks > len(self._cpus) and not self._cluster

    def _measure_count(
        self,
        peers: Sequence[Peer],
        num_ranks: int,
        end: float,
        span: float,
        *,
        budget: schedule.Budget,
        later: Sequence[Part],
    ) -> None:
        """Everything with `num_ranks`; the `later` parts are those of other numbers."""
        parts = self._parts(peers, num_ranks, end, span)
        tried: list[MessageSizeLaunch] = []
        for index, part in enumerate(parts[:-2], 1):
            tried += self._run(part, [*parts[index:], *later], budget)
        if not self._oversubscribed(num_ranks):
            choices = [(peer, setting) for peer in peers for setting in schedule.choose_settings(peer, tried)]
            self._note(choices, tried)
            parts = self._parts(peers, num_ranks, end, span, choices)
        self._run(parts[-2], [parts[-1], *later], budget)
        self._run(parts[-1], later, budget)

    def _parts(
        self,
        peers: Sequence[Peer],
        num_ranks: int,
        end: float,
        span: float,
        choices: Sequence[schedule.Choice] | None = None,
    ) -> list[Part]:
        """Trials of each library's settings, measurement of the `choices`, and comparison.

        `end` is what must be left of the budget, `span` what there is before. Before the trials each library is taken
        to get as many settings as it may. Ranks that share CPUs are measured at default settings only.
        """
        oversubscribed = self._oversubscribed(num_ranks)
        choices = schedule.likely_choices(peers) if choices is None else choices
        checks = (
            [] if oversubscribed else schedule.validity(self._sweep, peers, self._references(), num_ranks)
        )
        tried = [peer for peer in peers if schedule.has_choice(peer) and not oversubscribed]
        num_trials, num_done = sum(len(peer.settings) for peer in tried), 0
        parts = []
        for peer in tried:
            num_done += len(peer.settings)
            until = end + span * (1 - schedule.TUNING_SHARE * num_done / num_trials)
            trials = schedule.tuning(self._sweep, peer, num_ranks)
            parts.append(
                Part(title=f"settings of {peer.title}", groups=self._groups(trials, num_ranks), until=until)
            )
        measured = schedule.measurement(self._sweep, choices, num_ranks, oversubscribed=oversubscribed)
        reserve = schedule.VALIDITY_SHARE * span if checks else 0.0
        title = f"measuring {num_ranks} ranks{' that share CPUs' if oversubscribed else ''}"
        return [
            *parts,
            Part(title=title, groups=self._groups(measured, num_ranks), until=end + reserve),
            Part(title=f"comparing with {IMB}", groups=[[order] for order in checks], until=end),
        ]

    def _groups(self, orders: Sequence[LaunchOrder], num_ranks: int) -> list[schedule.Group]:
        """Which launches run together: between nodes none, and no more than memory holds the messages of."""
        if self._cluster:
            return [[order] for order in orders]
        return schedule.groups(orders, self._most_together[num_ranks])

    def _run(self, part: Part, later: Sequence[Part], budget: schedule.Budget) -> list[MessageSizeLaunch]:
        """The launches of a part for which the budget has room."""
        records: list[MessageSizeLaunch] = []
        num_launches, numbers = len(part.orders), itertools.count(1)
        for index, group in enumerate(budget.timed(part.groups, part.until)):
            end = self._clock() + budget.rest([replace(part, groups=part.groups[index:]), *later])

            def starting(order: LaunchOrder, end: float = end) -> None:
                left = format_seconds(max(0.0, end - self._clock()))
                self._progress(
                    f"{part.title} {next(numbers)}/{num_launches}: {order.name}; about {left} left"
                )

            made = together.run_together(
                group,
                lambda name: place_of(name, self._request.environments),
                position=self._position,
                cpus=self._cpus,
                cluster=self._cluster,
                starting=starting,
            )
            self._position += len(made)
            records += made
            for order, record in zip(group, made, strict=True):
                budget.spent(order, record.seconds)
                add_launch(self.folder, record)
                if record.failure:
                    self._tell(f"failed: {order.name}: {record.failure}")
        if missing := num_launches - len(records):
            self._tell(f"{part.title}: the budget had no room for {missing} of {num_launches} launches")
        return records

    def _state(self, peer: Peer) -> PeerState:
        if self._cluster:
            report = self._cluster.report
            reason, versions = cluster_unusable(peer, report), report.versions
        else:
            place = place_of(peer.name, self._request.environments)
            note = read_note(place)
            reason, versions = unusable(peer, place), note.versions if note else {}
        return PeerState(name=peer.name, title=peer.title, kind=peer.kind, versions=versions, unusable=reason)

    def _see_gpus(self) -> gpus.Gpus:
        """What torch sees of the GPUs: the environment's on nodes, else that of this program."""
        return gpus.ask(self._cluster.installation, ["torch"]) if self._cluster else gpus.see(["torch"])

    def _note(self, choices: Sequence[schedule.Choice], tried: Sequence[MessageSizeLaunch]) -> None:
        """Which settings are measured; with several numbers of ranks the last choice stays."""
        if self._campaign is None:
            return
        chosen = [
            Chosen(
                backend=name,
                settings=[setting.name for peer, setting in choices if peer.name == name],
                num_tried=sum(record.backend == name for record in tried),
            )
            for name in dict.fromkeys(peer.name for peer, _ in choices)
        ]
        self._campaign = self._campaign.model_copy(update={"chosen": chosen})
        write_campaign(self.folder, self._campaign)

    def _references(self) -> dict[str, Path]:
        """IMB-MPI1 for each MPI: what the user built, or that of Intel's wheel where it speaks the MPI's ABI.

        None between nodes: there is nothing of the kind in a system's environment.
        """
        if self._cluster:
            return {}
        wheel = place_of("intelmpi", self._request.environments).folder / "bin" / IMB
        return {
            **(dict.fromkeys(SPEAKS_ITS_ABI, wheel) if wheel.exists() else {}),
            **self._request.references,
        }
