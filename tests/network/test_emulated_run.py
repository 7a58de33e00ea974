"""`dlscale run` between two emulated hosts: killed, nothing of it is left; run again, its records say all."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.requires("mpiexec", "ring", "hydra", "namespaces", "torch", "tensorflow"),
    pytest.mark.timeout(600),
]

STUDY = """
name = "two-hosts"
title = "Two hosts"
scaling_mode = "weak"
workloads = ["hep_cnn"]
frameworks = ["torch"]
backends = ["ring", "mpi", "mpi_ps"]
preset = "tiny"
precision = "fp32"
nodes = [2]
base = "smallest"
servers = ["1"]
launches = 1
budget = 1
repeats = 0
controls = []
[rules]
warmup_steps = 2
min_windows = 2
min_window_seconds = 0.01
min_steps = 2
"""


def networks(marker: str) -> set[str]:
    """The network namespaces of the processes with this text in their command line, but for ours."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes():
                found.add(os.readlink(folder / "ns/net"))
        except OSError:
            continue  # ended meanwhile
    return found - {os.readlink("/proc/self/ns/net")}


def users(network: str) -> list[str]:
    """The processes in a network namespace, and those that keep it by a descriptor."""
    found = []
    for link in (*Path("/proc").glob("[0-9]*/ns/net"), *Path("/proc").glob("[0-9]*/fd/*")):
        try:
            if os.readlink(link) == network:
                found.append(link.parts[2])
        except OSError:
            continue
    return found


def until(condition, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def processes(marker: str) -> list[str]:
    """Those with this word in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(folder.name)
        except OSError:
            continue  # ended meanwhile
    return found


def test_a_study_between_two_hosts_is_killed_and_resumed(tmp_path: Path):
    study, results = tmp_path / "two-hosts.toml", tmp_path / "results"
    study.write_text(STUDY)
    dlscale = str(Path(sys.prefix) / "bin" / "dlscale")
    words = [dlscale, "run", str(study), "--system", "emulated-4", "--results", str(results)]
    words += ["--data", "synthetic", "--set", "emulation=link_rate=100Mb/s,slow_link=2:0.5"]
    words += ["--set", "compute=sleep:5ms,10ms"]
    spool = str(results / "emulated-4")
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert until(lambda: len(networks(spool)) > 2, 60), process.stderr.read()  # the switch and two hosts
        made = networks(spool)
        process.kill()
    assert until(lambda: not any(users(network) for network in made), 20)
    assert until(lambda: not processes(spool), 10)

    in_graph = [*words, "--frameworks", "tensorflow", "--backends", "ring"]
    for each in (words, in_graph):
        done = subprocess.run(each, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(path.read_text()) for path in results.glob("emulated-4/*/records/*.json")]
    cells = [record["case"]["cell"] for record in records]
    good = {
        (cell["framework"], cell["backend"]): record
        for cell, record in zip(cells, records, strict=True)
        if record["failure"] is None
    }
    assert set(good) == {("torch", name) for name in ("ring", "mpi", "mpi_ps")} | {("tensorflow", "ring")}
    for record in good.values():
        assert record["evidence"] == "emulated"
        assert record["case"]["cell"]["slept"] == {"forward_seconds": 0.005, "backward_seconds": 0.01}
        assert min(max(window["seconds"]) / window["num_steps"] for window in record["windows"]) > 0.014
        assert [rank["node"] for rank in record["ranks"]] == ["h1", "h2"]
        assert record["configuration"]["fabric"]["bandwidth"] == 12.5e6
        assert record["configuration"]["emulation"]["slow_link 2"] == 0.5
    assert [rank["node"] for rank in good["torch", "mpi_ps"]["servers"]] == ["h3"]
