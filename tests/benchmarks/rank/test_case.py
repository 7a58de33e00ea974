"""What a launch makes of gates on which its ranks do not agree."""

from types import SimpleNamespace

import pytest

from dlscale.benchmarks.rank.case import LaunchContext
from dlscale.benchmarks.records.record import Gate
from dlscale.benchmarks.records.spool import SpoolWriter, read_spools
from dlscale.models.workload import Shard
from tests.benchmarks.rank.threads import on_ranks


@pytest.mark.parametrize(("failing", "failed"), [(None, []), (0, ["second"]), (2, ["second"])])
def test_a_gate_that_fails_on_any_rank_fails_on_all(tmp_path, failing, failed):
    def body(world):
        context = LaunchContext(
            spec=SimpleNamespace(seed=1),
            backend=None,
            control=world,
            world=world,
            shard=Shard(),
            spool=SpoolWriter(tmp_path, world.rank),
        )
        deviation = 2.0 if world.rank == failing else 0.5
        gates = [
            Gate.unchecked("first", f"rank {world.rank}"),
            Gate.at_most(1.0, deviation, name="second", detail=f"rank {world.rank}"),
        ]
        passed = context.write_gates(gates, case=0)
        context.spool.close()
        return passed

    assert on_ranks(3, body) == [failing is None] * 3
    for rank, spool in enumerate(read_spools(tmp_path, 3)):
        first, second = spool.of(Gate, 0)
        assert [gate.name for gate in (first, second) if not gate.passed] == failed
        assert (first.detail, second.detail) == ("rank 0", f"rank {failing or 0}"), rank
