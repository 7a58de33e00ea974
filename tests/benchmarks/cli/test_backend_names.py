"""Backends and frameworks have the same names in every verb, and one that does not exist is the same mistake."""

import shutil
from pathlib import Path

import pytest

from dlscale.benchmarks.message_sizes.peers import MPI_PEERS, load_peers
from dlscale.collectives import NAMES

STUDY = "weak-scaling-2c2a4218"
GOLDEN = Path(__file__).parents[2] / "golden" / "records" / STUDY
PEERS = [peer.name for peer in load_peers()]


@pytest.mark.parametrize(
    ("command", "known"),
    [
        ("run weak-scaling --dry-run --backends rnig", NAMES),
        ("run weak-scaling --dry-run --set backend_options=rnig.teams=1", NAMES),
        ("predict weak-scaling --backends rnig", NAMES),
        (f"figures {STUDY} --backends rnig --results RESULTS", NAMES),
        (f"proposal {STUDY} --backends rnig --results RESULTS", NAMES),
        ("collectives --backends rnig", PEERS),
        ("collectives setup --backends rnig", PEERS),
        (f"compare {STUDY} --reference rnig --results RESULTS", ["ring"]),
        ("doctor --require rnig", ["ring"]),
    ],
)
def test_a_backend_that_does_not_exist_is_one_line_with_those_that_do(command, known, mistake, tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "local" / STUDY)
    line = mistake(*command.replace("RESULTS", str(tmp_path)).split())
    assert "'rnig'" in line
    assert all(name in line.partition("choose")[2] for name in known)


def test_what_is_timed_alone_has_the_same_names_or_those_of_its_mpi():
    assert {*PEERS} - set(MPI_PEERS) < set(NAMES)


@pytest.mark.parametrize("verb", ["figures", "proposal", "export"])
def test_a_folder_that_cannot_be_written_names_the_option_of_its_verb(mistake, tmp_path, verb):
    shutil.copytree(GOLDEN, tmp_path / "local" / STUDY)
    line = mistake(*verb.split(), STUDY, "--out", "/proc/nothing", "--results", tmp_path)
    assert "folder /proc/nothing is not writable" in line
    assert "with --out" in line
