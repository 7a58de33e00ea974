"""From the spools of one launch to one record per case, whatever became of the launch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlscale.base.definitions import Frozen
from dlscale.base.redaction import redacted
from dlscale.benchmarks.records.record import (
    Allocation,
    Case,
    Checkpoint,
    Configuration,
    Evidence,
    Failure,
    Fingerprint,
    Gate,
    NodeEnergy,
    NodeFacts,
    Phases,
    RankFacts,
    Record,
    Resumption,
    Setting,
    Window,
)
from dlscale.benchmarks.records.spool import Event, RankSpool


class LaunchMetadata(Frozen):
    """What the records of one launch have in common and the ranks cannot know."""

    study: str
    system: str
    fingerprint: Fingerprint
    started_at: str
    order_seed: int
    command: str
    oversubscribed: bool
    environment_variables: dict[str, str]
    configuration: Configuration | None = None
    allocation: Allocation | None = None


def assemble(
    case: Case,
    index: int,
    spools: Sequence[RankSpool],
    *,
    attempt: int,
    circumstances: LaunchMetadata,
    failure: Failure | None,
) -> Record:
    """The record of the launch's case number `index`.

    `spools` are those of the workers, then those of the servers. `failure` is why the launch ended early; a case that
    had ended before keeps its result, and a failed gate makes a failure of its own.
    """
    num_ranks = case.cell.num_ranks
    spools, servers = spools[:num_ranks], spools[num_ranks:]
    gates = _gates(spools, index)
    ended = all(spool.of("case_end", index) for spool in spools)
    failed = next((gate for gate in gates if not gate.passed), None)
    if failed:
        failure = Failure(kind="gate", rank=None, message=f"gate {failed.name} failed: {_compare(failed)}")
    elif ended:
        failure = None
    elif failure is None:
        failure = Failure(
            kind="error", rank=None, message="the launch ended without a result and without an error"
        )
    results = [next(iter(spool.of("result", index)), {}) for spool in spools]
    return Record(
        study=circumstances.study,
        system=circumstances.system,
        evidence=_evidence([*spools, *servers], case.cell.num_nodes),
        case=case,
        attempt=attempt,
        started_at=circumstances.started_at,
        order_seed=circumstances.order_seed,
        fingerprint=circumstances.fingerprint,
        configuration=circumstances.configuration,
        allocation=circumstances.allocation,
        command=redacted(circumstances.command),
        oversubscribed=circumstances.oversubscribed,
        ranks=[_facts(spool, index) for spool in spools if spool.hello],
        servers=[_facts(spool, index) for spool in servers if spool.hello],
        nodes=_nodes([*spools, *servers], index),
        backend_settings=redacted(_settings(results)),
        environment_variables=redacted(circumstances.environment_variables),
        phases=_phases(spools, index),
        steady=results[0].get("steady"),
        windows=_windows(spools, index),
        bucket_bytes=results[0].get("bucket_bytes", []),
        copy_rates=[result["copy_rate"] for result in results if "copy_rate" in result],
        energy=_energy([*spools, *servers], index),
        checkpoints=[
            Checkpoint.model_validate(_without_place(event)) for event in spools[0].of("checkpoint", index)
        ],
        resumed=next(
            (Resumption.model_validate(_without_place(event)) for event in spools[0].of("resumed", index)),
            None,
        ),
        final_loss=[_finite(result.get("loss")) for result in results],
        skipped_samples=[result.get("skipped") for result in results],
        gates=gates,
        failure=Failure.model_validate(redacted(failure.model_dump())) if failure else None,
    )


def _gates(spools: Sequence[RankSpool], index: int) -> list[Gate]:
    """The launch's gates and the case's own. Ranks agree on them, so any rank's will do."""
    for spool in spools:
        events = [event for event in spool.of("gates") if event.get("case", index) == index]
        if events:
            return [Gate.model_validate(redacted(gate)) for event in events for gate in event["gates"]]
    return []


def _compare(gate: Gate) -> str:
    value = "not finite" if gate.value is None else f"{gate.value:.3g}"
    return f"{gate.detail}: {value}, allowed {gate.tolerance:.3g}"


def _windows(spools: Sequence[RankSpool], index: int) -> list[Window]:
    """The windows that all ranks finished, as a matrix; starts count from the first window's earliest."""
    per_rank = [spool.of("window", index) for spool in spools]
    finished = list(zip(*per_rank, strict=False))
    if not finished:
        return []
    zero = min(event["start"] for event in finished[0])
    return [
        Window(
            phase=events[0]["phase"],
            num_steps=max(event["num_steps"] for event in events),
            num_applied=events[0]["num_applied"],
            rank_steps=_rank_steps(events),
            start_seconds=[event["start"] - zero for event in events],
            seconds=[event["seconds"] for event in events],
            step_seconds=[e["step_seconds"] for e in events] if events[0]["step_seconds"] else None,
            bucket_seconds=[e["bucket_seconds"] for e in events] if "bucket_seconds" in events[0] else None,
        )
        for events in finished
    ]


def _without_place(event: Event) -> Event:
    """What an event says beside its kind and its case."""
    return {name: value for name, value in event.items() if name not in {"event", "case"}}


def _phases(spools: Sequence[RankSpool], index: int) -> Phases:
    def warm_up(spool: RankSpool) -> list[float]:
        return [event["seconds"] for event in spool.of("window", index) if event["phase"] == "warmup"]

    return Phases(
        start_up=[spool.seconds("start_up") for spool in spools],
        import_backend=[spool.seconds("import_backend") for spool in spools],
        connect=[spool.seconds("connect") for spool in spools],
        gates=[spool.seconds("gates") for spool in spools],
        first_step=[next(iter(warm_up(spool)), None) for spool in spools],
        warm_up=[math.fsum(warm_up(spool)) or None for spool in spools],
    )


def _rank_steps(events: Sequence[Event]) -> list[int] | None:
    """Steps of each rank, where they took as many as they could."""
    return None if events[0]["num_applied"] is None else [event["num_steps"] for event in events]


def _facts(spool: RankSpool, index: int) -> RankFacts:
    ends = spool.of("case_end", index)
    return RankFacts(
        rank=spool.rank,
        local_rank=spool.hello["local_rank"],
        node=spool.hello["node"],
        boot_id=spool.hello["boot_id"],
        affinity=spool.hello["affinity"],
        num_threads=spool.hello["num_threads"],
        peak_rss_bytes=ends[-1]["peak_rss_bytes"] if ends else 0,
    )


def _nodes(spools: Sequence[RankSpool], index: int) -> list[NodeFacts]:
    """Each node once, as its first rank saw it."""
    found: dict[tuple[str, str | None], NodeFacts] = {}
    for spool in spools:
        for event in spool.of("node"):
            facts = {name: value for name, value in event.items() if name in NodeFacts.model_fields}
            ends = spool.of("case_end", index)
            load_after = ends[-1].get("load") if ends else None
            node = NodeFacts(**(redacted(facts) | {"node": spool.hello["node"]}), load_after=load_after)
            found.setdefault((node.node, node.switch_path), node)
    return list(found.values())


def _energy(spools: Sequence[RankSpool], index: int) -> list[NodeEnergy]:
    """What each node's counters said; none where no node came to the end of the case's windows.

    The first rank of a node reads them. Where that is a server nobody does: servers know nothing of windows.
    """
    readings = {spool.rank: event for spool in spools for event in spool.of("energy", index)}
    if not readings:
        return []
    found: list[NodeEnergy] = []
    for spool in spools:
        if not spool.hello or spool.hello["local_rank"] != 0:
            continue
        nothing = {
            "source": None,
            "parts": "",
            "joules": None,
            "seconds": None,
            "reason": "the node's first rank did not train to the end",
        }
        who = {"rank": spool.rank, "node": spool.hello["node"]}
        told = readings.get(spool.rank, {}).get("readings", [nothing])
        found += [NodeEnergy(**(redacted(reading) | who)) for reading in told]
    return found


def _settings(results: Sequence[dict[str, dict[str, Setting]]]) -> dict[str, Setting]:
    """Rank 0's settings; one that differs between ranks is listed with all its values."""
    found = dict(results[0].get("settings", {}))
    for name in found:
        values = [result.get("settings", {}).get(name) for result in results]
        if any(value != values[0] for value in values):
            found[name] = " | ".join(str(value) for value in values)
    return found


def _evidence(spools: Sequence[RankSpool], num_nodes: int) -> Evidence:
    """Measured, unless several nodes turn out to share one machine."""
    machines = {spool.hello["boot_id"] for spool in spools if spool.hello}
    return "emulated" if machines and len(machines) < num_nodes else "measured"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
