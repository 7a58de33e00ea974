"""Energy: joules of all machines per sample, or why there is no number."""

from typing import Any

import pytest

from dlscale.analysis.findings.energy import FINDING
from dlscale.analysis.load import Study
from dlscale.benchmarks.records.record import EnergyReading, Record
from tests.made_records import make_record

SAMPLES = 10 * 5 * 8 * 2  # of ten windows of five steps on 2 ranks


def launch(*entries: dict[str, Any], boots: tuple[str, ...] = ("a", "b"), block: int = 0) -> Record:
    """A launch on 2 ranks, each on the machine of that boot."""
    record = make_record(backend="ring", num_ranks=2, block=block)
    ranks = [rank.model_copy(update={"boot_id": boots[rank.rank]}) for rank in record.ranks]
    read = {"node": "n", "source": "rapl", "seconds": 4.0}
    energy = [EnergyReading.model_validate(read | entry) for entry in entries]
    return record.model_copy(update={"ranks": ranks, "energy": energy})


def row(*launches: Record) -> dict[str, Any]:
    (found,) = FINDING.of(Study(launches)).to_dict("records")
    return dict(found)


def test_joules_of_all_machines_over_samples() -> None:
    both = launch({"rank": 0, "joules": 800.0}, {"rank": 1, "joules": 400.0})
    found = row(both)
    assert found["joules_per_sample"] == pytest.approx(1200 / SAMPLES)
    assert found["watts"] == pytest.approx(300)
    assert found["counted"] == "processors and memory"


def test_nodes_that_share_a_machine_count_once() -> None:
    shared = launch(
        {"rank": 0, "joules": 800.0}, {"rank": 1, "joules": 700.0, "seconds": 3.5}, boots=("a", "a")
    )
    assert row(shared)["joules_per_sample"] == pytest.approx(800 / SAMPLES)


def test_whole_nodes_come_before_their_parts_and_parts_add_up() -> None:
    parts = [{"rank": rank, "joules": 100.0, "source": kind} for rank in (0, 1) for kind in ("rapl", "nvml")]
    whole = [{"rank": rank, "joules": 900.0, "source": "pm_counters"} for rank in (0, 1)]
    assert row(launch(*parts))["joules_per_sample"] == pytest.approx(400 / SAMPLES)
    assert row(launch(*parts, *whole))["joules_per_sample"] == pytest.approx(1800 / SAMPLES)


def test_a_machine_without_a_reading_gives_no_number() -> None:
    reason = {"rank": 1, "joules": None, "seconds": None, "reason": "no permission"}
    found = row(launch({"rank": 0, "joules": 800.0}, reason))
    assert found["joules_per_sample"] != found["joules_per_sample"]
    assert (found["num_launches"], found["reason"]) == (0, "rapl: no permission")
    assert row(launch())["reason"] == "no counter was read"
    frame = FINDING.of(Study([launch()]))
    assert FINDING.sentence(frame) == "Energy per sample is not known: no counter was read."
    assert FINDING.table(frame).empty


def test_launches_with_other_counters_are_not_averaged() -> None:
    rapl = [launch(*({"rank": rank, "joules": 400.0} for rank in (0, 1)), block=block) for block in range(2)]
    other = launch(*({"rank": rank, "joules": 9.0, "source": "nvml"} for rank in (0, 1)), block=2)
    found = row(*rapl, other)
    assert (found["sources"], found["num_launches"]) == ("rapl", 2)
    assert found["joules_per_sample"] == pytest.approx(800 / SAMPLES)
