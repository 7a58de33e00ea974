"""From a node's counters to a record: who reads when, and what becomes of nodes that nobody read."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from dlscale.benchmarks.rank.case import CaseRun, LaunchContext
from dlscale.benchmarks.rank.controls import measure_loader
from dlscale.benchmarks.records.assemble import assemble
from dlscale.benchmarks.records.spool import CaseEnd, EnergyReading, SpoolWriter, read_spools
from dlscale.benchmarks.study.rules import Rules
from dlscale.models.workload import Shard
from tests.benchmarks.rank.threads import ALONE
from tests.benchmarks.records.test_assemble import CASE, METADATA
from tests.benchmarks.spools import rank_info

CELL = CASE.cell.model_copy(update={"num_nodes": 2, "control": "loader"})
READING = EnergyReading(source="rapl", parts="1 package", joules=42.0, seconds=4.0)


class Loader:
    def next_batch(self):
        return None

    def num_skipped(self):
        return 1  # so that its samples are not looked at


class Meter:
    """Writes down when it is called, and how many windows the spool has by then."""

    def __init__(self, path: Path) -> None:
        self.path, self.calls = path, []

    def _call(self, name):
        self.calls.append((name, self.path.read_text().count('"event": "MeasuredWindow"')))

    def after(self, window):
        self._call(window.phase)
        return window

    def end(self):
        self._call("end")
        return [READING]


def test_counters_are_read_between_windows_and_told_once(tmp_path):
    spool = SpoolWriter(tmp_path, 0)
    meter = Meter(tmp_path / "rank-00000.jsonl")
    rules = Rules(warmup_steps=3, min_windows=4, min_window_seconds=0, min_steps=4, max_steps=80)
    spec = SimpleNamespace(rules=rules, seed=1, cases=[CASE.model_copy(update={"cell": CELL})])
    context = LaunchContext(
        spec=spec,
        backend=None,
        control=ALONE,
        world=ALONE,
        shard=Shard(index=0, count=1),
        spool=spool,
        observers=[meter],
    )
    case = CaseRun(context=context, index=0, factory=lambda **_: Loader(), deadline=0.0)
    measure_loader(case)
    spool.close()
    names = [name for name, _ in meter.calls]
    assert names == ["warmup"] * 10 + ["steady"] * 4 + ["end"]
    # Each call comes before its window is written, and the last one after all of them.
    assert [count for _, count in meter.calls] == [*range(14), 14]
    assert read_spools(tmp_path, 1)[0].of(EnergyReading, 0) == [READING]


@pytest.fixture
def record(tmp_path):
    """Assembled from ranks on nodes of their own, rank by rank the readings that it wrote; None: it wrote none."""

    def make(*per_rank, local_ranks=(0, 0), cell=CELL, metadata=METADATA):
        for rank, readings in enumerate(per_rank):
            spool = SpoolWriter(tmp_path, rank)
            where = {"local_rank": local_ranks[rank], "node": f"n{rank}", "boot_id": f"b{rank}"}
            spool.write(rank_info(rank, **where))
            for reading in readings or ():
                spool.write(reading, case=0)
            spool.write(CaseEnd(peak_rss_bytes=1, load=None), case=0)
            spool.close()
        spools = read_spools(tmp_path, len(per_rank))
        case = CASE.model_copy(update={"cell": cell})
        return assemble(case, 0, spools, attempt=1, metadata=metadata, failure=None)

    return make


OTHER = READING.model_copy(update={"joules": 43.0})


@pytest.mark.parametrize(
    ("per_rank", "local_ranks", "num_servers", "found"),
    [
        ([[READING], [OTHER]], (0, 0), 0, [("n0", 42.0), ("n1", 43.0)]),
        ([[READING], None], (0, 1), 0, [("n0", 42.0)]),  # other ranks of a node do not count it again
        ([[READING], [OTHER], None], (0, 0, 0), 1, [("n0", 42.0), ("n1", 43.0), ("n2", None)]),
        ([None, None], (0, 0), 0, []),  # a launch that never came so far
    ],
)
def test_each_node_is_in_the_record_once(record, per_rank, local_ranks, num_servers, found):
    cell = CELL.model_copy(update={"num_servers": num_servers})
    energies = record(*per_rank, local_ranks=local_ranks, cell=cell).energy
    assert [(energy.node, energy.joules) for energy in energies] == found


def test_a_node_that_nobody_read_is_named_with_the_reason(record):
    found = record([READING], None).energy[1]
    assert (found.rank, found.node, found.joules, found.source) == (1, "n1", None, None)
    assert "did not train to the end" in found.reason
