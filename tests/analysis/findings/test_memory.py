"""Memory of a rank: state that is counted and expected, what is sent, and whether sharding pays."""

from typing import Any

import numpy as np
import pytest

from dlscale.analysis.findings.memory import FINDING
from dlscale.analysis.load import Study
from dlscale.benchmarks.records.record import Record, StateBytes
from dlscale.models import load_workload
from tests.made_records import make_record

WEIGHTS = load_workload("gpt").presets["tiny"].num_parameters


def sharded(
    shard: str, rate: float, *, block: int = 0, state: tuple[Any, ...] | None = (40, 40, 80)
) -> Record:
    """A launch on 2 ranks, of which the second has twice the parameters."""
    record = make_record(
        workload="gpt",
        backend="ring",
        num_ranks=2,
        shard=shard,
        block=block,
        samples_per_second=rate,
        local_batch=8,
    )
    parts = dict(zip(("parameters", "gradients", "optimizer"), state or (), strict=False))
    ranks = [
        rank.model_copy(
            update={
                "state_bytes": StateBytes(**parts | {"parameters": parts["parameters"] * (1 + rank.rank)})
            }
        )
        for rank in (record.ranks if state else ())
    ]
    settings = {"bucket_bytes": "400,600", "gather_bytes": "1000,400"}
    return record.model_copy(update={"ranks": ranks or record.ranks, "backend_settings": settings})


def rows(*records: Record) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = FINDING.of(Study(records)).to_dict("records")
    return found


def test_the_largest_rank_counts_and_a_part_that_is_not_told_is_missing() -> None:
    (row,) = rows(sharded("none", 100, state=(40, None, 80)))
    assert (row["parameters_bytes"], row["optimizer_bytes"], row["state_bytes"]) == (80, 80, 160)
    assert row["gradients_bytes"] != row["gradients_bytes"]


@pytest.mark.parametrize(
    ("shard", "kept", "sent"),
    [("none", (1, 1, 2), 1000), ("optimizer", (1, 1, 1), 1200), ("parameters", (0.5, 0.5, 1), 1200)],
)
def test_expected_is_weights_over_what_is_sharded(shard: str, kept: tuple[float, ...], sent: float) -> None:
    (row,) = rows(sharded(shard, 100))
    parts = ("parameters", "gradients", "optimizer")
    assert [row[f"expected_{part}_bytes"] for part in parts] == [4 * WEIGHTS * share for share in kept]
    assert row["expected_state_bytes"] == 4 * WEIGHTS * sum(kept)
    assert row["sent_bytes_per_step"] == sent  # half of buckets and gathers


def test_a_sharded_step_is_relative_to_that_of_the_same_block() -> None:
    launches = [
        sharded(shard, rate * drift, block=block, state=state)
        for block, drift in enumerate((1.0, 0.5, 2.0))
        for shard, rate, state in (("none", 100, (40, 40, 80)), ("parameters", 50, (20, 20, 40)))
    ]
    whole, half = rows(*launches)
    assert whole["slowdown"] != whole["slowdown"]
    assert half["slowdown"] == pytest.approx(2)
    assert (half["slowdown_low"], half["slowdown_n"]) == (pytest.approx(2), 3)
    sentence = FINDING.sentence(FINDING.of(Study(launches)))
    assert "ring, parameters sharded keeps 50 % of the state and 50 % [50, 50] of the throughput" in sentence
    assert "Sharding pays here only where 100 B of state fit and 200 B do not." in sentence
    faster = [
        one if one.case.cell.shard == "none" else sharded("parameters", 999, block=one.case.block)
        for one in launches
    ]
    assert "pays here in time and in memory" in FINDING.sentence(FINDING.of(Study(faster)))


def test_a_busy_machine_tells_no_time() -> None:
    launches = [sharded(shard, 100, block=block) for block in range(3) for shard in ("none", "optimizer")]
    others = {"foreign_cpu": np.full(len(launches[0].windows), 0.5)}
    busy = [one.model_copy(update={"windows": one.windows.model_copy(update=others)}) for one in launches]
    assert "Whether that pays in time is not known." in FINDING.sentence(FINDING.of(Study(busy)))
