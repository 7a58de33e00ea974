"""Predictions in words and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlscale.analysis.curves import setting_text
from dlscale.analysis.declare import Column, Table, TableOf
from dlscale.analysis.families import tokens_per_sample
from dlscale.analysis.findings.memory import expected_state, total_bytes
from dlscale.analysis.findings.waterfall_parts import shown_name
from dlscale.analysis.predict.prediction import PredictedCurve
from dlscale.analysis.predict.profile import SOURCES, at_batch
from dlscale.analysis.predict.scenario import ASSUMED, Scenario, noise_texts
from dlscale.analysis.records import prediction_row
from dlscale.analysis.text import number, plural, seconds_text, size_text
from dlscale.benchmarks.records.prediction import PredictionRecord
from dlscale.collectives.sharding import NONE
from dlscale.models import load_workload

FLOAT32_BYTES = 4


def prediction_table(records: Sequence[PredictionRecord]) -> Table:
    """A row per prediction, by backend and number of nodes; all are of one training."""
    first = records[0]
    per_node = first.num_ranks // first.num_nodes
    caption = (
        f"{first.workload} {first.preset}, {first.scaling_mode} scaling on {first.system}, {first.framework}, "
        f"{first.batch} samples per {'rank' if first.scaling_mode == 'weak' else 'step'}, "
        f"{per_node} rank{'s' * (per_node > 1)} per node"
    )
    if any(doubt.startswith(ASSUMED) for record in records for doubt in record.doubts):
        caption += "; rests on assumptions"
    return TableOf[PredictionRecord](
        name="prediction",
        caption=caption,
        columns=(
            Column("backend", lambda record: record.carrier, numeric=False),
            Column("nodes", lambda record: record.num_nodes),
            Column("ranks", lambda record: record.num_ranks),
            Column("servers", lambda record: record.num_servers or ""),
            Column("samples/s", lambda record: number(record.samples_per_second.center)),
            Column("low", lambda record: number(record.samples_per_second.low)),
            Column("high", lambda record: number(record.samples_per_second.high)),
            Column("tokens/s", _tokens),
            Column("efficiency", lambda record: _percent(record.efficiency.center), unit="%"),
            Column("low", lambda record: _percent(record.efficiency.low), unit="%"),
            Column("high", lambda record: _percent(record.efficiency.high), unit="%"),
        ),
        data=prediction_row,
        legend="low and high: 5 to 95 % of the replicates, of what stands before them",
        group=lambda record: record.carrier,
    ).of(records)


def _tokens(record: PredictionRecord) -> str:
    """The rate in tokens; empty where samples are no sequences."""
    tokens = tokens_per_sample(record)
    return number(record.samples_per_second.center * tokens) if tokens else ""


def assumption_line(records: Sequence[PredictionRecord]) -> str:
    """What stands for facts that nobody states; empty without any."""
    doubts = dict.fromkeys(doubt for record in records for doubt in record.doubts)
    texts = [doubt.removeprefix(ASSUMED) for doubt in doubts if doubt.startswith(ASSUMED)]
    return f"{ASSUMED}{'; '.join(texts)}" if texts else ""


def first_line(record: PredictionRecord) -> str:
    """What every reader has to know before the numbers; sources are in the figure's small print and on the page."""
    source, *_ = record.profile_source.partition(SOURCES)
    return f"predicted, not measured on {record.system}: {record.profile_evidence} profile, {source}"


def basis_lines(scenario: Scenario) -> Iterator[str]:
    """What disturbs steps and was measured, what was not, and what of the profile is derived, one line each.

    The jitter of messages on a calibrated network is its backend's, and not in these lines.
    """
    measured, not_measured = noise_texts(scenario, of_messages=scenario.calibrated_nodes is None)
    yield from (f"noise: {text}" for text in measured)
    if not_measured:
        yield f"not modelled: {'; '.join(not_measured)}"
    if scenario.profile.derived:
        yield f"derived: {'; '.join(scenario.profile.derived)}"


def network_line(curves: Sequence[PredictedCurve]) -> str:
    """What the network alone leaves of the efficiency on the most nodes: in the middle, and at most.

    At most is for the fewest bytes that any of the backends moves through a node's link, the highest rates of links and
    the slowest nodes that the profile allows, all of it overlapped: no prediction but for its noise is above.
    """
    scenario, last = curves[0].scenario, curves[0].points[-1]
    nodes, network = last.num_nodes, scenario.network
    if nodes == 1:
        return ""
    profile = at_batch(scenario.profile, last.local_batch)
    num_bytes = sum(gradient.num_bytes for gradient in profile.gradients)
    fewest = min(
        (1 if rule.serves else 2 * (nodes - 1) / nodes) * rule.bytes_per_element / FLOAT32_BYTES
        for rule in (curve.scenario.rule for curve in curves)
    )
    computing, wire = profile.backward_seconds, fewest * num_bytes / network.node_bytes_per_second
    idle = max(1.0, profile.least_batch[1] / profile.local_batch)
    slowest = profile.mean_step_seconds * profile.time_factors[1] * idle
    most = min(1.0, slowest / (wire / network.rate_factors[1]))
    return (
        f"network on {nodes} nodes: gradients take {seconds_text(wire)} on the wire, computation "
        f"{seconds_text(computing)}: not overlapped, that keeps {100 * computing / (computing + wire):.0f} %; "
        f"overlapped, at most {100 * most:.0f} %"
    )


def state_line(curves: Sequence[PredictedCurve]) -> str:
    """What a rank keeps on the most ranks, for each shard; empty where nothing is sharded or slots are not known."""
    profile = curves[0].scenario.profile
    facts = load_workload(profile.workload)
    shards = list(dict.fromkeys(curve.scenario.shard for curve in curves))
    if shards == [NONE] or facts.num_slots is None:
        return ""
    num_ranks, num_weights = curves[0].points[-1].num_ranks, facts.preset(profile.preset).num_parameters
    kept = []
    for shard in dict.fromkeys([NONE, *shards]):
        state = expected_state(num_weights, facts.num_slots, shard=shard, num_ranks=num_ranks)
        kept.append(f"{setting_text('shard', shard)} {size_text(total_bytes(state) or 0)}")
    return f"state of a rank on {plural(num_ranks, 'rank')}: {', '.join(kept)}; activations come on top"


def explanation(curve: PredictedCurve) -> Iterator[str]:
    """Where the last point loses its efficiency, and what other inputs would give it."""
    point, rule = curve.points[-1], curve.scenario.rule
    sharded = "" if curve.scenario.shard == NONE else f", {curve.scenario.shard} sharded,"
    where = f"{rule.backend}{sharded} on {point.num_nodes} nodes"
    parts = ", ".join(
        f"{shown_name(name)} {round(100 * share, 1) + 0.0:.1f}" for name, share in point.parts.items()
    )
    yield (
        f"{where}: efficiency {_percent(point.efficiency.center)} %; of the predicted step of "
        f"{number(1e3 * point.step_seconds.center)} ms are lost, in percent: {parts}"
    )
    if not curve.sensitivity:
        return
    as_it_is = curve.sensitivity["as it is"]
    others = [
        f"{name} {_percent(efficiency)} % ({100 * (efficiency - as_it_is):+.1f})"
        for name, efficiency in curve.sensitivity.items()
        if name != "as it is"
    ]
    yield f"{where}, efficiency with {'; '.join(others)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
