"""Whole command lines, as they are started."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dlscale.benchmarks.message_sizes.launch import (
    DRIVER,
    LaunchFiles,
    LaunchOrder,
    clean_environment,
    command_of,
)
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting, Place, load_peers

FILES = LaunchFiles.within(Path("/spool"), Path("/flags"))
COMMON = (
    "--output /spool/samples.jsonl --flags /flags --sizes 4096,8192 --modes hot,cold --cpus 0,1 "
    "--cold-bytes 1048576 --seconds 1.50 --rounds 4 --max-calls 400 --limit 78"
)


def line(order: LaunchOrder) -> str:
    place = Place(Path("/env"))
    return " ".join(command_of(order, place, FILES, cpus=[0, 1], cold_bytes=2**20))


def test_an_mpi(order: LaunchOrder):
    assert line(order) == (
        "/env/bin/mpiexec -n 2 -bind-to none -genv OMP_NUM_THREADS 1 /env/build/dlscale-allreduce "
        f"{COMMON} --operations mpi,ring --thread-level single"
    )


def test_a_setting_is_its_variables(order: LaunchOrder):
    setting = PeerSetting(name="CMA", thread_level="multiple", variables={"MPIR_CVAR_CH4_CMA_ENABLE": "1"})
    assert line(replace(order, setting=setting)) == (
        "/env/bin/mpiexec -n 2 -bind-to none -genv OMP_NUM_THREADS 1 -genv MPIR_CVAR_CH4_CMA_ENABLE 1 "
        f"/env/build/dlscale-allreduce {COMMON} --operations mpi,ring --thread-level multiple"
    )


def test_crowded_ranks_of_open_mpi(order: LaunchOrder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    peer = order.peer.model_copy(update={"name": "openmpi"})
    assert line(replace(order, peer=peer, num_ranks=4)).startswith(
        "/env/bin/mpiexec -n 4 --bind-to none --map-by slot:OVERSUBSCRIBE -x OMP_NUM_THREADS=1 "
    )


def test_a_driver_in_python(order: LaunchOrder):
    peer = Peer(name="gloo", title="Gloo", kind="torch", packages=["torch"], settings=order.peer.settings)
    assert line(replace(order, peer=peer, operations=["gloo"])) == (
        "/env/bin/mpiexec -n 2 -bind-to none -genv OMP_NUM_THREADS 1 /env/bin/python "
        f"{DRIVER} --backend gloo --store /spool/store {COMMON}"
    )


def test_the_benchmark_of_others_does_what_ours_does(order: LaunchOrder):
    ours = replace(order, purpose="validity", operations=["mpi-copy"], num_calls=200, volume_bytes=2**28)
    assert line(ours).endswith(
        "--operations mpi-copy --thread-level single --volume 268435456 --barrier mpi --warmup-calls 10"
    )
    assert line(replace(ours, program="IMB-MPI1", reference=Path("/imb/IMB-MPI1"))) == (
        "/env/bin/mpiexec -n 2 -bind-to none -genv OMP_NUM_THREADS 1 -genv LD_LIBRARY_PATH /env/lib "
        f"{sys.executable} -m dlscale.benchmarks.message_sizes.bound 0,1 /imb/IMB-MPI1 -thread_level single Allreduce "
        "-npmin 2 -iter 200,256 -iter_policy dynamic -time 78 -sync on -msglog 0:14 -msglen /spool/lengths"
    )


def test_a_users_own_settings_do_not_leak_into_the_measurement():
    kept = {"PATH": "/bin", "HOME": "/home/x"}
    leaking = {
        "OMPI_MCA_coll": "basic",
        "MPIR_CVAR_CH4_CMA_ENABLE": "1",
        "HOROVOD_CYCLE_TIME": "5",
        "I_MPI_SHM": "x",
    }
    assert clean_environment({**kept, **leaking}) == kept


def test_every_peer_has_a_default_and_no_setting_twice():
    for peer in load_peers():
        names = [setting.name for setting in peer.settings]
        assert len(names) == len(set(names)), peer.name
        assert any(setting.default for setting in peer.settings), peer.name
        meanings = [
            (setting.thread_level, tuple(sorted(setting.variables.items()))) for setting in peer.settings
        ]
        assert len(meanings) == len(set(meanings)), peer.name
