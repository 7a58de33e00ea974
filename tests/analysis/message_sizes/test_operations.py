"""Reduce-scatter, allgather and broadcast beside allreduce, each with rows, rates and a table of its own."""

import pytest

from dlscale.analysis.declare import Sentence, Table
from dlscale.analysis.message_sizes.report import blocks, write_files
from dlscale.analysis.message_sizes.summary import message_size_row, summarise
from dlscale.benchmarks.records.message_sizes import CellFailure, Choice

from .conftest import KIB, MIB

TIMES = {"allreduce": 400.0, "reduce_scatter": 200.0, "allgather": 100.0, "broadcast": 50.0}


@pytest.fixture
def summary(make_campaign, make_launch):
    """MPICH and the ring, which is twice as fast, on 3 ranks at 1 MiB; the memory stream beside the allreduce."""
    launches = []
    for block in range(3):
        for name, backend, factor in (("mpi", "mpich", 1.0), ("ring", "ring", 0.5)):
            launch = make_launch(
                {name: {MIB: 1.0}, "stream": {MIB: 80.0}}, backend=backend, block=block, num_ranks=3
            )
            own, bound = [
                [one for one in launch.samples if one.operation == operation]
                for operation in (name, "stream")
            ]
            samples = [
                one.model_copy(
                    update={
                        "collective": collective,
                        "nanoseconds": [[round(1000 * factor * seconds)] * 4] * 3,
                        "used_bytes": MIB if collective in ("allreduce", "broadcast") else MIB - 4,
                    }
                )
                for collective, seconds in TIMES.items()
                for one in own
            ]
            launches.append(launch.model_copy(update={"samples": samples + bound}))
    missing = CellFailure(
        operation="mpi", collective="broadcast", message_bytes=4 * KIB, reason="no broadcast"
    )
    launches[0] = launches[0].model_copy(update={"failures": [missing]})
    return summarise(make_campaign(collectives=list(TIMES), rank_counts=[3]), launches)


def row(summary, backend, collective):
    (found,) = [
        one
        for one in summary.rows
        if (one.backend, one.collective, one.message_bytes) == (backend, collective, MIB)
    ]
    return found


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("allreduce", 4 / 3), ("reduce_scatter", 2 / 3), ("allgather", 2 / 3), ("broadcast", 1)],
)
def test_rates_are_those_of_nccl_tests(summary, collective, factor):
    found = message_size_row(row(summary, "mpich", collective))
    used = MIB if factor in (4 / 3, 1) else MIB - 4
    assert found["operation"] == collective
    assert found["used_bytes"] == used
    assert found["algbw_gb_per_second"] == pytest.approx(1e-9 * used / (1e-6 * TIMES[collective]))
    assert found["busbw_gb_per_second"] == pytest.approx(factor * found["algbw_gb_per_second"])


def test_only_an_allreduce_has_a_memory_bound_and_each_is_paired_with_the_rings(summary):
    for collective in TIMES:
        found = row(summary, "mpich", collective)
        assert (found.fraction_of_bound is not None) == (collective == "allreduce")
        assert found.ring_speedup.center == pytest.approx(2.0)


def said(summary):
    return "\n".join(block.text for block in blocks(summary) if isinstance(block, Sentence))


def test_a_table_each_and_what_a_library_lacks_is_said(summary, tmp_path):
    captions = [block.caption for block in blocks(summary) if isinstance(block, Table)]
    assert len(set(captions)) == len(TIMES)
    assert "mpich (default), 3 ranks, measured, mpi broadcast: no broadcast" in said(summary)
    assert {path.name for path in write_files(summary, tmp_path)} >= {
        "collectives-3r.png",
        "collectives-reduce_scatter-3r.pdf",
        "collectives-broadcast-3r.svg",
    }


def test_between_nodes_the_wire_is_the_bound(make_campaign, make_launch):
    launch = make_launch({"ring": {MIB: 8000.0}}, backend="ring", num_ranks=6)
    campaign = make_campaign(
        rank_counts=[6], nodes=["a", "b", "c"], ranks_per_node=2, system="A system", wire_bytes_per_second=1e9
    )
    found = summarise(campaign, [launch.model_copy(update={"num_nodes": 3})])
    ring = row(found, "ring", "allreduce")
    assert ring.fraction_of_bound.center == pytest.approx(
        4 / 3 * MIB / 1e9 / 8e-3
    )  # 2 (n - 1) / n, n = 3 nodes
    assert message_size_row(ring)["num_nodes"] == 3
    (table,) = [block for block in blocks(found) if isinstance(block, Table)]
    assert table.caption.endswith("6 ranks on 3 nodes of A system")
    assert "what a node's link carries (1 GB/s in each direction)" in said(found)
    assert "ranks start 0.02 us apart" in said(found)


def test_how_the_ring_moved_messages_is_told_once_for_all_sizes_alike(make_campaign, make_launch):
    def moved(*variants):
        launch = make_launch({"ring": {MIB: 400.0}}, backend="ring")
        choices = [
            Choice(
                operation=operation,
                collective="allreduce",
                up_to_bytes=MIB << power,
                variant=variant,
                gigabytes_per_second={variant: 8.0},
            )
            for power, variant in enumerate(variants)
            for operation in ("ring", "ring-shared")
        ]
        return launch.model_copy(update={"choices": choices})

    launches = [moved("staged", "single copy", "single copy")] * 2 + [
        moved("staged", "staged", "single copy")
    ]
    (line,) = summarise(make_campaign(), launches).choices
    assert line == (
        "The ring found fastest, 2 ranks, allreduce: staged up to 1 MiB; "
        "single copy up to 4 MiB (not in every launch: 2 MiB)."
    )
