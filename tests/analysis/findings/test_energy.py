"""Joules per sample of launches whose counters are known."""

import pytest

from dlscale.analysis.findings.energy import Reading, energies, reading
from dlscale.analysis.launches import launches_of
from dlscale.analysis.measured import measure
from dlscale.benchmarks.records.nodes import NodeEnergy
from tests.analysis.reading import data_of
from tests.made_records import make_record

SAMPLES = 10 * 5 * 8  # per rank: windows, steps, local batch


def powered(joules, *, num_nodes=2, machines=None, seconds=20.0, **fields):
    """A launch on several nodes; `joules` source -> of each node, None where it could not be read."""
    record = make_record(num_ranks=num_nodes, num_nodes=num_nodes, **fields)
    places = machines or [f"machine-{node}" for node in range(num_nodes)]
    ranks = [
        one.model_copy(update={"node": f"n{index}", "boot_id": places[index], "local_rank": 0})
        for index, one in enumerate(record.ranks)
    ]
    energy = [
        NodeEnergy(
            rank=index, node=f"n{index}", source=source, parts="" if value is None else "node", joules=value,
            seconds=None if value is None else seconds, reason="no counter" if value is None else None,
        )
        for source, values in joules.items()
        for index, value in enumerate(values)
    ]  # fmt: skip
    return record.model_copy(update={"ranks": ranks, "energy": energy})


def test_joules_of_all_nodes_over_samples_of_all_ranks():
    found = reading(powered({"rapl": [3000.0, 5000.0]}))
    assert found.samples == 2 * SAMPLES
    assert found.joules_per_sample == pytest.approx(10)
    assert found.watts == pytest.approx(400)


@pytest.mark.parametrize(
    ("joules", "fields", "total", "sources"),
    [
        ({"rapl": [3000.0, 5000.0]}, {}, 8000, ("rapl",)),
        # Whole nodes are preferred to their parts and never added.
        ({"rapl": [3000.0, 3000.0], "pm_counters": [4000.0, 6000.0]}, {}, 10_000, ("pm_counters",)),
        ({"rapl": [3000.0, 3000.0], "pm_counters": [4000.0, None]}, {}, 6000, ("rapl",)),
        # Processors and GPUs are added.
        ({"rapl": [1000.0, 1000.0], "nvml": [3000.0, 4000.0]}, {"device": "gpu"}, 9000, ("rapl", "nvml")),
        ({"nvml": [3000.0, 4000.0]}, {"device": "gpu"}, 7000, ("nvml",)),
        # Nodes that share a machine share its counters.
        ({"rapl": [3000.0, 3010.0]}, {"machines": ["m", "m"], "evidence": "emulated"}, 3010, ("rapl",)),
    ],
)
def test_what_was_read_counts_once(joules, fields, total, sources):
    found = reading(powered(joules, **fields))
    assert (found.joules, found.sources) == (total, sources)


def test_a_node_without_a_number_leaves_none():
    assert reading(powered({"rapl": [3000.0, None]})) == "rapl: no counter"
    record = powered({"rapl": [3000.0, 5000.0]})
    silent = record.model_copy(update={"energy": record.energy[:1]})
    assert not isinstance(reading(silent), Reading)


def test_a_server_s_node_counts_and_is_missed():
    record = powered({"rapl": [3000.0, 5000.0]})
    server = record.ranks[0].model_copy(update={"rank": 2, "node": "n2", "boot_id": "another"})
    assert isinstance(reading(record.model_copy(update={"servers": [server]})), str)
    beside = server.model_copy(update={"boot_id": record.ranks[0].boot_id})
    assert reading(record.model_copy(update={"servers": [beside]})).joules == 8000


def test_of_a_cell_the_median_launch_counts_with_its_interval():
    records = [powered({"rapl": [100.0 * (block + 1), 0.0]}, block=block) for block in range(6)]
    (found,) = energies(launches_of(records))
    assert found.joules_per_sample.center == pytest.approx(350 / (2 * SAMPLES))
    assert found.joules_per_sample.low == pytest.approx(
        110 / (2 * SAMPLES)
    )  # a tenth of the way to the second
    assert found.joules_per_sample.n == found.num_launches == 6


def test_launches_that_count_different_things_are_not_averaged():
    records = [powered({"rapl": [100.0, 100.0]}, block=block) for block in range(3)]
    records.append(powered({"pm_counters": [9000.0, 9000.0]}, block=3))
    (found,) = energies(launches_of(records))
    assert (found.num_launches, found.sources) == (3, ("rapl",))
    assert found.joules_per_sample.center == pytest.approx(200 / (2 * SAMPLES))


def test_controls_and_failures_take_no_energy_of_the_table():
    assert energies(launches_of([powered({"rapl": [1.0, 1.0]}, control="loader")])) == []
    assert reading(powered({"rapl": [1.0, 1.0]}, failure="died")) == "the launch gave no number"


def test_json_has_joules_and_sources_or_a_reason():
    (row,) = data_of(measure([powered({"rapl": [3000.0, 5000.0]})]))["energy"]
    assert row["joules_per_sample"] == pytest.approx(10)
    assert (row["sources"], row["reason"], row["num_launches"]) == ("rapl", None, 1)
    (row,) = data_of(measure([powered({"rapl": [None, 5000.0]})]))["energy"]
    assert (row["joules_per_sample"], row["sources"], row["reason"]) == (None, None, "rapl: no counter")


def test_nodes_that_count_different_parts_are_told():
    records = [powered({"rapl": [3000.0, 5000.0]}, block=block) for block in range(2)]
    records[1].energy[0] = records[1].energy[0].model_copy(update={"parts": "2 packages"})
    (row,) = data_of(measure(records))["energy"]
    assert row["parts"] == "2 packages | node"
