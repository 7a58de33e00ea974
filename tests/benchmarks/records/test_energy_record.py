"""From a node's counters to a record: who reads when, and what becomes of nodes that nobody read."""

from pathlib import Path

import pytest

from dlscale.benchmarks.rank.case import CaseRun, LaunchContext
from dlscale.benchmarks.rank.controls import measure_loader
from dlscale.benchmarks.records.assemble import assemble
from dlscale.benchmarks.records.record import Configuration
from dlscale.benchmarks.records.spool import CaseEnd, EnergyReading, SpoolWriter, read_spools
from dlscale.benchmarks.study.rules import Rules
from dlscale.models.workload import Input, Shard
from tests.benchmarks.records.test_assemble import CASE, METADATA, info

CELL = CASE.cell.model_copy(update={"num_nodes": 2, "control": "loader"})
READING = EnergyReading(source="rapl", parts="1 package", joules=42.0, seconds=4.0)


class Alone:
    """The control of a single rank."""

    def barrier(self):
        pass

    def maximum(self, value):
        return value


class Loader:
    def next_batch(self):
        return None

    def num_skipped(self):
        return 0


class Meter:
    """Writes down when it is called, and how many windows the spool has by then."""

    def __init__(self, path: Path) -> None:
        self.path, self.calls = path, []

    def _call(self, name):
        self.calls.append((name, self.path.read_text().count('"event": "window"')))

    def after(self, window):
        self._call(window.phase)
        return window

    def end(self):
        self._call("end")
        return [READING]


def test_counters_are_read_between_windows_and_told_once(tmp_path):
    spool = SpoolWriter(tmp_path, 0)
    meter = Meter(tmp_path / "rank-00000.jsonl")
    rules = Rules(
        warmup_steps=3, max_warmup_steps=3, min_windows=4, min_window_seconds=0, min_steps=4, max_steps=40
    )
    context = LaunchContext(
        backend=None,
        control=Alone(),
        world=None,
        shard=Shard(index=0, count=1),
        rules=rules,
        seed=1,
        spool=spool,
        observers=[meter],
    )
    case = CaseRun(
        context=context,
        index=0,
        cell=CELL,
        factory=lambda **_: Loader(),
        source=Input(),
        reference_factory=lambda **_: Loader(),
        deadline=0.0,
    )
    measure_loader(case)
    spool.close()
    names = [name for name, _ in meter.calls]
    assert names == ["warmup"] * 3 + ["steady"] * 4 + ["end"]
    # Each call comes before its window is written, and the last one after all of them.
    assert [count for _, count in meter.calls] == [*range(7), 7]
    assert read_spools(tmp_path, 1)[0].of(EnergyReading, 0) == [READING]


@pytest.fixture
def record(tmp_path):
    """Assembled from ranks on nodes of their own, rank by rank the readings that it wrote; None: it wrote none."""

    def make(*per_rank, local_ranks=(0, 0), cell=CELL, metadata=METADATA):
        for rank, readings in enumerate(per_rank):
            spool = SpoolWriter(tmp_path, rank)
            local = local_ranks[rank]
            where = {"local_rank": local, "node": f"n{rank}", "boot_id": f"b{rank}"}
            spool.write(info(rank).model_copy(update=where))
            for reading in readings or ():
                spool.write(reading, case=0)
            spool.write(CaseEnd(peak_rss_bytes=1, load=None), case=0)
            spool.close()
        spools = read_spools(tmp_path, len(per_rank))
        case = CASE.model_copy(update={"cell": cell})
        return assemble(case, 0, spools, attempt=1, metadata=metadata, failure=None)

    return make


def test_counters_that_emulated_hosts_share_are_not_summed(record):
    asked = {"study_digest": "s", "system_digest": "y", "skip_bad": False, "budget_seconds": 60, "rules": {}}
    shaped = Configuration(**asked, fabric={}, emulation={"queue": 1e6})
    found = record(
        [READING], [READING], metadata=METADATA.model_copy(update={"configuration": shaped})
    ).energy
    assert [(energy.node, energy.joules, energy.reason) for energy in found] == [
        (node, None, "emulated hosts share the counters of one machine") for node in ("n0", "n1")
    ]


def test_each_node_s_readings_are_in_the_record(record):
    found = record([READING], [READING.model_copy(update={"joules": 43.0})]).energy
    assert [(energy.rank, energy.node, energy.joules) for energy in found] == [
        (0, "n0", 42.0),
        (1, "n1", 43.0),
    ]


def test_a_node_that_nobody_read_is_named_with_the_reason(record):
    found = record([READING], None).energy
    assert (found[1].node, found[1].joules, found[1].source) == ("n1", None, None)
    assert "did not train to the end" in found[1].reason


def test_other_ranks_of_a_node_do_not_count_it_again(record):
    assert len(record([READING], None, local_ranks=(0, 1)).energy) == 1


def test_a_server_s_node_is_named_too(record):
    found = record(
        [READING], [READING], None, local_ranks=(0, 0, 0), cell=CELL.model_copy(update={"num_servers": 1})
    )
    assert [(energy.rank, energy.joules) for energy in found.energy] == [(0, 42.0), (1, 42.0), (2, None)]


def test_a_launch_that_never_came_so_far_has_none(record):
    assert record(None, None).energy == []
