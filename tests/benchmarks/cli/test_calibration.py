"""Where a calibration comes from: studies, and runs of `dlscale collectives`, by path or name."""

import json

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import main
from dlscale.benchmarks.cli.calibration import calibration_folders
from dlscale.benchmarks.records.message_sizes import (
    MessageSizeLaunch,
    MessageSizeRun,
    Samples,
    add_launch,
    write_campaign,
)

LATENCY, RATE = 40e-6, 2e9
SIZES = [1 << 20, 4 << 20, 16 << 20]


@pytest.fixture
def run(tmp_path):
    """The folder of a collectives run over the ring on 2 and 4 nodes."""
    folder = tmp_path / "collectives" / "20261123"
    write_campaign(
        folder,
        MessageSizeRun(
            started="2026-11-23T10:00:00+00:00",
            commit="c",
            sizes=SIZES,
            rank_counts=[2, 4],
            num_blocks=1,
            cpus=[0],
            budget_seconds=1.0,
            seed=1,
            node={},
            peers=[],
        ),
    )
    for position, nodes in enumerate((2, 4)):
        samples = [
            Samples(
                operation="ring",
                message_bytes=size,
                round=0,
                num_warmup=1,
                nanoseconds=[[round(2e9 * (nodes - 1) * (LATENCY + size / nodes / RATE))]] * nodes,
                spread_nanoseconds=[0],
            )
            for size in SIZES
        ]
        add_launch(
            folder,
            MessageSizeLaunch(
                purpose="measured",
                block=0,
                position=position,
                backend="ring",
                setting="default",
                variables={},
                thread_level="single",
                num_ranks=nodes,
                num_nodes=nodes,
                program="dlscale",
                command="mpiexec",
                started="2026-11-23T10:00:00+00:00",
                seconds=1.0,
                samples=samples,
            ),
        )
    return folder


def test_a_run_is_found_by_path_by_name_and_as_the_latest(run, tmp_path):
    assert calibration_folders(tmp_path, [str(run), "20261123", "collectives"]) == [run] * 3
    with pytest.raises(UsageError, match="no study in"):
        calibration_folders(tmp_path, ["weak-scaling"])


def test_a_prediction_is_calibrated_with_a_run(run, tmp_path, capsys):
    words = ["predict", "weak-scaling", "--system", "cori", "--workloads", "hep_cnn"]
    words += ["--results", str(tmp_path), "--calibrate", run.name, "--nodes", "256", "--replicates", "100"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--backends", "ring", "--json"])
    said = capsys.readouterr()
    assert not ended.value.code, said.err
    (row,) = json.loads(said.out)["rows"]
    assert row["calibrated_nodes"] == 4
    assert abs(row["held_out_error"]) < 0.05
    with pytest.raises(SystemExit) as ended:
        main([*words, "--backends", "grpc_ps", "--json"])
    said = capsys.readouterr()
    assert not ended.value.code, said.err
    (servers,) = json.loads(said.out)["rows"]  # calibrated by what the ring shows of the links
    assert (servers["backend"], servers["calibrated_nodes"]) == ("grpc_ps", 4)
    assert servers["network_digest"] != row["network_digest"]  # its source names the ring
    with pytest.raises(SystemExit) as ended:
        main([*words, "--backends", "mpi"])
    assert ended.value.code == 1
    assert "the run has no allreduce of it between nodes" in capsys.readouterr().err
