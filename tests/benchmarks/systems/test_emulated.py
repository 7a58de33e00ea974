"""Emulated hosts as a system: what its file and the command line may say, and what is refused before a start."""

import json
import os
import shutil
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch import hosts
from dlscale.benchmarks.launch.configuration import stated_emulation, stated_fabric
from dlscale.benchmarks.launch.preparing import prepare_campaign
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.emulation import with_emulation
from dlscale.benchmarks.systems.system import System, load_system

RUN = [
    "weak-scaling",
    "--system",
    "emulated-4",
    "--workloads",
    "hep_cnn",
    "--frameworks",
    "torch",
    "--launches",
    "1",
]


@pytest.fixture
def emulated() -> System:
    return load_system("emulated-4")


def test_the_command_line_has_the_last_word_on_links_and_is_recorded_as_their_source(emulated):
    system = with_emulation(emulated, "link_rate=400Mb/s,queue=2MB,slow_link=3:0.5,slow_link=4:0.25")
    assert (system.fabric.bandwidth.number, system.fabric.bandwidth.source) == (50e6, "command line")
    assert stated_emulation(system) == {
        "queue": 2e6, "congestion_control": "reno", "slow_link 3": 0.5, "slow_link 4": 0.25,
    }  # fmt: skip
    assert stated_fabric(system)["bandwidth"] == 50e6
    assert (
        System.model_validate(json.loads(system.model_dump_json())) == system
    )  # as `dlscale resume` reads it
    shape = hosts.hosts_of(system, num_hosts=3)
    assert (shape.bytes_per_second, shape.queue_bytes, shape.slow_links) == (50e6, 2_000_000, {3: 0.5})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("speed=1", "give one of link_rate=..., queue=..., congestion_control=..., slow_link=..."),
        ("link_rate=fast", "'fast' is not in bytes per second"),
        ("link_rate=0Mb/s", "not positive"),
        ("congestion_control=bbr", "'reno' or 'cubic'"),
        ("slow_link=9:0.5", "host 9, but there are 4"),
        ("slow_link=1:2", "at most 1"),
        ("slow_link=1", "slow_links"),
    ],
)
def test_settings_that_no_link_can_have_are_refused(emulated, text, reason):
    with pytest.raises(UsageError, match="emulation") as caught:
        with_emulation(emulated, text)
    assert reason in str(caught.value)


def test_links_of_real_nodes_cannot_be_set(mistake):
    said = mistake("run", "weak-scaling", "--dry-run", "--set", "emulation=queue=1MB")
    assert "--set emulation on local, whose nodes are not emulated" in said


@pytest.mark.parametrize(
    "change", [{"emulation": None}, {"scheduler": "slurm"}, {"fabric": None}, {"launcher": "srun"}]
)
def test_a_file_says_all_that_hosts_need(emulated, change):
    with pytest.raises(ValueError, match="emulat"):
        System.model_validate(emulated.model_dump(mode="json") | change)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--nodes", "8"), "8 nodes on partition all of emulated-4, which allows 4"),
        (
            ("--nodes", "4", "--backends", "mpi_ps", "--set", "servers=2"),
            "need 6 hosts of emulated-4, which has 4",
        ),
        (("--nodes", "2", "--account", "m1"), "--account on emulated-4, which has no scheduler"),
        (("--nodes", "2", "--set", "ranks_per_node=2"), "whose nodes have 1 usable cores"),
    ],
)
def test_what_the_hosts_do_not_have_is_one_line(mistake, words, reason):
    assert reason in mistake("run", *RUN, "--dry-run", *words)


@pytest.mark.parametrize("lacking", ["root", "tc", "cubic", "namespaces"])
def test_a_machine_that_cannot_be_the_hosts_says_why_and_writes_nothing(
    mistake, monkeypatch, tmp_path, lacking
):
    monkeypatch.setattr(os, "geteuid", lambda: 1000 if lacking == "root" else 0)
    found = shutil.which
    monkeypatch.setattr(
        shutil,
        "which",
        lambda name, **more: None if name == lacking else found(name, **more) or f"/bin/{name}",
    )
    (tmp_path / "tcp_allowed_congestion_control").write_text("reno bbr\n")
    monkeypatch.setattr(hosts, "SYSCTL", tmp_path)
    if lacking == "namespaces":
        monkeypatch.setattr(hosts, "_TRIAL", "echo mount: permission denied >&2; exit 1")
        monkeypatch.setattr(hosts, "_TRIED", ("sh", "-c"))
    results = tmp_path / "results"
    words = ("--nodes", "2", "--backends", "mpi", "--results", str(results))
    words += ("--set", "emulation=congestion_control=cubic") if lacking == "cubic" else ()
    text = mistake("run", *RUN, *words)
    reason = {
        "root": "needs root",
        "tc": "no tc",
        "cubic": "only reno, bbr",
        "namespaces": "mount: permission denied",
    }[lacking]
    assert "--system emulated-4: " in text
    assert reason in text
    assert not results.exists()


def test_a_launch_makes_its_hosts_and_becomes_mpiexec(emulated, tmp_path):
    study = load_study(
        "weak-scaling", system=emulated, workloads=["hep_cnn"], frameworks=["torch"], backends=["mpi"],
        nodes=[2], base="smallest", launches=1,
    )  # fmt: skip
    slow = with_emulation(emulated, "slow_link=2:0.5")
    campaigns = [
        prepare_campaign(study, system, environment_name=None, data="synthetic", results=tmp_path)
        for system in (emulated, slow)
    ]
    assert len({campaign.store.folder for campaign in campaigns}) == 2  # other links, another curve
    (launch,) = (launch for launch in campaigns[1].plan.launches if launch.cell.num_ranks == 2)
    line = campaigns[1].command(launch)
    mpiexec = str(campaigns[1].installation.mpiexec)
    assert line[: line.index(mpiexec) + 7] == [
        str(campaigns[1].installation.python), "-P", "-m", "dlscale.benchmarks.launch.hosts",
        "--hosts", "2", "--rate", "2.5e+07", "--queue", "1000000", "--congestion-control", "reno",
        "--slow-link", "2:0.5", "--cores-per-host", "1",
        mpiexec, "-n", "2", "-hosts", "10.231.0.1,10.231.0.2", "-ppn", "1",
    ]  # fmt: skip
    assert Path(line[-1]).name == launch.id
