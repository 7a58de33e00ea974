"""The message-size benchmark: whose time counts, what is paired with what, what is missing, and what a person gets."""

import csv
import io

import pytest
from rich.console import Console

from dlscale.analysis import message_sizes_report as report
from dlscale.analysis.message_sizes import average_bus_bandwidths, message_sizes
from dlscale.benchmarks.records import message_sizes as records
from dlscale.benchmarks.records.collective_operations import BY_NAME

KIB, MIB = 2**10, 2**20
WHEN = "2026-11-20T10:00:00Z"
TITLES = {"ring": "ring", "mpich": "MPICH", "openmpi": "Open MPI", "intelmpi": "Intel MPI", "gloo": "Gloo"}
DRIFT = (1.0, 3.0, 0.5)  # of the machine, from block to block
MICROSECONDS = {"allreduce": 400.0, "reduce_scatter": 200.0, "allgather": 100.0, "broadcast": 50.0}


def both(small, large):
    return {4 * KIB: small, MIB: large}


def launch(microseconds=None, *, noise=1.0, rounds=(1.0, 1.0), cell_failures=None, **fields):
    """`microseconds[operation][size]` is the time of the slowest rank; others take a third.

    All times are `noise` and those of each round the number in `rounds` times as long.
    """
    fields = {"backend": "mpich", "setting": "default", "num_ranks": 2, "purpose": "measured"} | fields
    fields = {
        "thread_level": "single",
        "command": "mpiexec",
        "seconds": 1.0,
        "started": WHEN,
        "block": 0,
    } | fields
    ranks, setting = range(fields["num_ranks"]), fields["setting"]

    def of(word):
        operation, _, collective = word.partition(":")  # "mpi", "mpi:broadcast"
        return {"operation": operation, "collective": collective or "allreduce"}

    def samples(word, size, index, time):
        own, used = of(word), BY_NAME[of(word)["collective"]].num_elements(size, len(ranks)) * 4
        slower = [1 if rank == index % len(ranks) else 1 / 3 for rank in ranks]
        own |= {"message_bytes": size, "used_bytes": used, "round": index, "num_warmup": 5}
        return records.Samples(**own, nanoseconds=[[round(1000 * time * share)] * 4 for share in slower])

    return records.MessageSizeLaunch(
        position=0,
        variables={} if setting == "default" else {"SOME_SETTING": setting},
        samples=[
            samples(word, size, index, time * noise * longer)
            for word, by_size in (microseconds or {}).items()
            for size, time in by_size.items()
            for index, longer in enumerate(rounds)
        ],
        failures=[records.CellFailure(**of(word), **why) for word, why in (cell_failures or {}).items()],
        **fields,
    )


def peers(*names, **unusable):
    named = (dict.fromkeys(names) | unusable).items()
    kinds = {name: "mpi" if "mpi" in name else "torch" for name in TITLES}
    return [
        records.PeerState(name=n, title=TITLES[n], kind=kinds[n], versions={}, unusable=why)
        for n, why in named
    ]


def campaign(**changes):
    fields = {"sizes": [4 * KIB, MIB], "rank_counts": [2], "num_blocks": 3, "cpus": [0, 1], "seed": 1}
    fields |= {"started": WHEN, "commit": "c" * 40, "node": {"cpu_model": "A CPU"}}
    return records.MessageSizeRun.model_validate({**fields, "peers": peers(*TITLES), **changes})


def row(rows, backend, size, *, setting="", **fields):
    for name, value in {"backend": backend, "message_bytes": size, **fields}.items():
        rows = rows[rows[name] == value]
    ((_, found),) = rows[rows["setting"].str.startswith(setting)].iterrows()
    return found


@pytest.fixture
def drifting():
    """Three blocks on a machine that drifts; MPICH takes 4 and the ring 2 microseconds per 10 KiB."""
    mpich = {"mpi": both(3.0, 400.0), "ring": both(1.0, 200.0)}
    tuned = {"mpi": both(5.0, 300.0), "ring": both(1.0, 200.0)}
    launches = []
    for block, noise in enumerate(DRIFT):
        launches += [
            launch(mpich, block=block, noise=noise),
            launch(tuned, block=block, noise=noise * 1.5, setting="tuned"),
            launch({"gloo": both(100.0, 1000.0)}, block=block, noise=noise, backend="gloo"),
        ]
    return message_sizes(campaign(), launches)


def test_the_slowest_rank_counts_and_the_best_setting_of_each_size_is_marked(drifting):
    mpich = row(drifting, "mpich", MIB, setting="default")
    assert mpich["median_seconds"] == pytest.approx(400e-6)  # of 400, 1200 and 200
    assert mpich["algbw_gb_per_second"] == pytest.approx(MIB / 400e-6 / 1e9)
    assert mpich["best_algbw_gb_per_second"] == pytest.approx(MIB / 200e-6 / 1e9)
    assert (mpich["num_launches"], mpich["num_calls"]) == (3, 3 * 8)
    assert (mpich["tuned"], row(drifting, "mpich", MIB, setting="tuned")["tuned"]) == (False, True)
    assert row(drifting, "mpich", 4 * KIB, setting="default")["tuned"]


def test_drift_cancels_in_what_ran_in_one_process_or_block(drifting):
    for backend, setting, name, expected in (
        ("mpich", "default", "ring_speedup", 2.0),
        ("mpich", "tuned", "ring_speedup", 1.5),
        ("gloo", "default", "ring_speedup", 5.0),  # of the ring in the same block
    ):
        found = row(drifting, backend, MIB, setting=setting)
        assert found[name] == pytest.approx(expected, rel=1e-3)
        assert found[f"{name}_low"] == pytest.approx(expected, rel=1e-2)


def test_launches_that_took_turns_are_paired_turn_by_turn():
    launches = []
    for block in range(3):
        same = {"block": block, "together": 7 * block, "rounds": (1.0, 5.0, 1.0)}
        launches += [
            launch({"ring": {MIB: 200.0}}, backend="ring", **same),
            launch({"mpi": {MIB: 300.0}}, **same),
            launch({"mpi": {MIB: 300.0}}, backend="openmpi", block=block, rounds=(1.0, 5.0, 5.0)),
        ]
    rows = message_sizes(campaign(), launches)
    assert row(rows, "mpich", MIB)["ring_speedup"] == pytest.approx(1.5)
    assert row(rows, "openmpi", MIB)["ring_speedup"] == pytest.approx(7.5)  # alone: of the launches' medians


def test_what_is_missing_is_a_row_and_a_sentence():
    run = campaign(peers=peers("mpich", intelmpi="no wheel"))
    why = {"reason": "wrong result at element 3", "message_bytes": 4 * KIB}
    launches = [
        launch({"mpi": {4 * KIB: 1.0}}, cell_failures={"ring:broadcast": why}),
        launch(setting="tuned", operations=["mpi"], failure="a rank died: signal 9"),
    ]
    rows = message_sizes(run, launches)
    assert row(rows, "intelmpi", MIB)["failure"] == "no wheel"
    assert row(rows, "mpich", MIB, setting="tuned")["failure"] == "a rank died: signal 9"
    assert report.failures(run, launches) == [
        "Intel MPI: no wheel",
        "mpich (default), 2 ranks, measured, ring broadcast: wrong result at element 3",
        "mpich (tuned), 2 ranks, measured: a rank died: signal 9",
    ]


def test_each_number_of_ranks_has_a_ring():
    times = {"mpi": {MIB: 400.0}, "ring": {MIB: 200.0}}
    launches = [
        launch(times, backend="openmpi", setting="tuned"),
        launch(times, backend="openmpi"),
        launch({"mpi": {MIB: 800.0}, "ring": {MIB: 300.0}}, backend="openmpi", num_ranks=4),
    ]
    rows = message_sizes(campaign(rank_counts=[2, 4]), launches)
    for num_ranks, seconds in ((2, 200e-6), (4, 300e-6)):
        assert row(rows, "ring", MIB, num_ranks=num_ranks)["median_seconds"] == pytest.approx(seconds)


def test_the_ring_in_launches_of_its_own_is_paired_block_by_block():
    launches = []
    for block, noise in enumerate(DRIFT):
        same = {"block": block, "noise": noise}
        launches += [
            launch({"ring": {MIB: 200.0}, "stream": {MIB: 80.0}}, backend="ring", **same),
            launch({"ring-shared": {MIB: 100.0}}, backend="ring", **same),  # of an earlier version
            launch({"mpi": {MIB: 400.0}}, **same),
        ]
    rows = message_sizes(campaign(), launches)
    assert row(rows, "mpich", MIB)["ring_speedup"] == pytest.approx(2.0, rel=1e-3)
    assert row(rows, "ring", MIB)["num_launches"] == 3
    assert average_bus_bandwidths(rows).tolist() == pytest.approx([MIB / 200e3, MIB / 400e3])


@pytest.fixture
def operations():
    """MPICH and the ring, which is twice as fast, on 3 ranks at 1 MiB."""
    launches = []
    for block in range(3):
        for name, backend, factor in (("mpi", "mpich", 1.0), ("ring", "ring", 0.5)):
            times = {f"{name}:{word}": {MIB: factor * time} for word, time in MICROSECONDS.items()}
            launches.append(launch(times, backend=backend, block=block, num_ranks=3))
    return campaign(collectives=list(MICROSECONDS), rank_counts=[3]), launches


def test_rates_are_those_of_nccl_tests(operations):
    rows = message_sizes(*operations)
    for collective, factor in zip(MICROSECONDS, (4 / 3, 2 / 3, 2 / 3, 1), strict=True):
        found = row(rows, "mpich", MIB, collective=collective)
        used = MIB if factor in (4 / 3, 1) else MIB - 4
        assert (found["operation"], found["used_bytes"]) == (collective, used)
        assert found["algbw_gb_per_second"] == pytest.approx(1e-3 * used / MICROSECONDS[collective])
        assert found["busbw_gb_per_second"] == pytest.approx(factor * found["algbw_gb_per_second"])
        assert found["ring_speedup"] == pytest.approx(2.0)


def test_between_nodes_the_wire_is_the_bound():
    made = launch({"ring": {MIB: 8000.0}}, backend="ring", num_ranks=6, num_nodes=3)
    wire = {"nodes": ["a", "b", "c"], "ranks_per_node": 2, "system": "A system", "wire_bytes_per_second": 1e9}
    run = campaign(rank_counts=[6], **wire)
    ring = row(message_sizes(run, [made]), "ring", MIB)
    assert ring["fraction_of_bound"] == pytest.approx(4 / 3 * MIB / 1e9 / 8e-3)  # 2 (n - 1) / n, n = 3 nodes
    assert ring["num_nodes"] == 3
    assert report.heading(run, "allreduce", 6).endswith("6 ranks on 3 nodes of A system")
    said = " ".join(shown(run, [made]).split())
    assert "what a node's link carries (1 GB/s in each direction)" in said


def test_a_busy_machine_is_said():
    run = campaign(busy="other programs use 0.8 of 2 cores")
    assert "The machine was busy: other programs use 0.8 of 2 cores." in next(report.sentences(run))


def shown(run, launches):
    text = io.StringIO()
    rows = message_sizes(run, launches)
    Console(file=text, width=80).print(*report.blocks(run, launches, rows), sep="\n")
    return text.getvalue()


@pytest.fixture
def several():
    launches = []
    for block in range(3):
        times = {"mpi": both(3.0, 400.0), "ring": both(1.0, 200.0)}
        launches += [
            launch(times, block=block),
            launch({**times, "mpi": both(2.7, 360.0)}, block=block, setting=29 * "s"),
            launch({"gloo": both(100.0, 1000.0)}, block=block, backend="gloo"),
        ]
    return campaign(peers=peers("mpich", "gloo", intelmpi="no wheel")), launches


def test_a_terminal_of_80_columns_shows_every_number(several):
    lines = shown(*several).splitlines()
    assert max(map(len, lines)) <= 80
    line = next(line for line in lines if "4 KiB" in line and "ring" in line)
    assert line.split() == ["4", "KiB", "ring", "4.10", "4.10", "1.00"]
    assert "1.52" in next(line for line in lines if "mpich *" in line)  # 4 KiB in 2.7 us
    # (4 KiB / 1 us + 1 MiB / 200 us) / 2, and so on
    assert "in GB/s: ring 4.67, MPICH 2.21, Gloo 0.545" in " ".join(" ".join(lines).split())


def test_files_have_every_row_and_are_redrawn_to_the_byte(several, operations, tmp_path):
    rows = message_sizes(*several)
    written = report.write_files(*several, rows, tmp_path)
    assert [path.suffix for path in written] == [".csv", ".png", ".pdf", ".svg"]
    lines = list(csv.DictReader(written[0].read_text().splitlines()))
    assert len(lines) == len(rows)
    assert {line["data_hash"] for line in lines} == {report.origin(*several)["data_hash"]}
    assert {line["backend"] for line in lines} == {"ring", "mpich", "gloo", "intelmpi"}
    before = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in report.write_files(*several, rows, tmp_path)] == before
    assert report.origin(several[0], several[1][::-1]) == report.origin(*several)
    assert report.origin(several[0], several[1][:1]) != report.origin(*several)
    report.write_files(*operations, message_sizes(*operations), tmp_path)
    assert (tmp_path / "collectives-broadcast-3r.svg").exists()


def test_an_interrupted_run_has_no_rows_and_no_files(tmp_path):
    rows = message_sizes(campaign(), [])
    assert not len(rows)
    assert report.write_files(campaign(), [], rows, tmp_path) == []
    assert "No launch gave a number." in shown(campaign(), [])
    assert report.as_json(rows) == {"schema": 3, "rows": []}
