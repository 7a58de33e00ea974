"""Faults planted into whole launches, each with the gate or audit that must stop it: the one table of them.

What is planted is in `plants.py`. A launch of each takes seconds, so most are tried at night.
"""

import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from dlscale.benchmarks.launch.campaign import ALLOCATOR
from dlscale.benchmarks.launch.supervisor import PreparedLaunch, supervise
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.cell import Case, Cell
from dlscale.benchmarks.records.record import GATES_VERSION, Fingerprint, LaunchMetadata
from dlscale.benchmarks.records.spool import boot_id
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.rules import Rules
from dlscale.models import load_workload
from tests.faults import halos
from tests.faults.conftest import mpiexec
from tests.made_records import TARGET

pytestmark = [pytest.mark.requires("mpiexec"), pytest.mark.timeout(180), pytest.mark.slow]

PLANTS, HALOS = (Path(__file__).parent / name for name in ("plants.py", "halos.py"))
TO_TARGET = {"target": TARGET | {"threshold": 0.6, "evaluate_every": 20, "max_seconds": 10.0}}
TWO = {"backend": "mpi", "num_ranks": 2}
EXCHANGE = {"control": "exchange"}


def served(backend, framework="torch", **fields):
    """Two ranks and two servers of that backend."""
    return {"backend": backend, "framework": framework, "num_ranks": 2, "num_servers": 2, **fields}


ASYNCHRONOUS = {"backend_options": {"asynchronous": True}}
DOWNPOUR = {"algorithm": "downpour"}
ADAM = DOWNPOUR | {"algorithm_options": {"optimizer": "adam"}}
SERVERS = [
    served("mpi_ps"),
    served("mpi_ps", "tensorflow"),
    served("mpi_ps", **ADAM),
    served("mpi_ps", "tensorflow", **DOWNPOUR),
    served("mpi_ps", algorithm="easgd", algorithm_options={"interval": 1}),
    served("grpc_ps"),
    served("grpc_ps", **ASYNCHRONOUS),
    served("grpc_ps", "tensorflow"),
    served("grpc_ps", "tensorflow", **ASYNCHRONOUS),
]
# TensorFlow's own make every push their update.
ASYNCHRONOUS_SERVERS = [SERVERS[2], SERVERS[3], SERVERS[6]]
SHARDED = [
    TWO | {"shard": "optimizer"},
    TWO | {"backend": "gloo", "shard": "parameters"},
]
SHARING = [
    TWO | {"split": 2, "global_batch": 4, "framework": framework} for framework in ("torch", "tensorflow")
]
WITH_BATCH_NORM = {"workload": "cosmogan", "data": "synthetic"}
# 5 + 5 + 4 blocks of a network that ends in a global mean.
UNEVEN = {
    "preset": "paper",
    "data": "synthetic",
    "num_ranks": 3,
    "split": 3,
    "local_batch": 1,
    "global_batch": 1,
}
OF_PARTS = ["part_not_updated", "part_updated_twice", "part_gathered_stale"]
OF_SERVERS = ["servers_zero_a_shard", "servers_zero_all", "servers_halve", "servers_shorten"]

# (plant, where: how the launch differs from a timed training of 1 rank without exchange, what stops it)
FAULTS = [
    ("nothing", {}, None),
    ("nothing", TO_TARGET, None),
    ("one_step_less", {"control": "loader"}, "loader"),
    ("one_step_less", TO_TARGET, "audit_samples"),
    ("mean_halved", TO_TARGET, "audit_step"),
    ("evaluated_on_training_samples", TO_TARGET, "audit_held_out"),
    ("evaluated_on_other_samples", TO_TARGET, "audit_evaluation"),
    ("metric_raised", TO_TARGET, "audit_evaluation"),
    ("target_lowered", TO_TARGET, "audit_evaluation"),
    ("broadcast_from_rank_1", TWO, "broadcast"),
    ("wire_has_16_bits", TWO, "audit_step"),
    ("wire_has_16_bits", TWO | EXCHANGE, "exchange"),
    ("control_sends_nothing", TWO | EXCHANGE, "exchange"),
    ("loader_reads_nothing", {"control": "loader"}, "loader"),
    ("no_audits", {}, "audit_step"),
    *(("nothing", where, None) for where in SHARDED),
    *((plant, where, "audit_step") for plant in OF_PARTS for where in SHARDED),
    *(("nothing", where, None) for where in (*SHARING, SHARING[0] | TO_TARGET)),
    *((plant, where, "split") for plant in ("narrow_halo", "edge_gradient_dropped") for where in SHARING),
    *(("batch_norm_of_own_rows", where | WITH_BATCH_NORM, "split") for where in SHARING),
    *(("uneven_taken_for_even", where | UNEVEN, "split") for where in SHARING),
    *(("halo_of_the_step_before", where, "audit_step") for where in SHARING),
    *(("nothing", where, None) for where in SERVERS),
    *((plant, where, "audit_step") for plant in OF_SERVERS for where in SERVERS),
    *(("servers_zero_every_second_push", where, "audit_step") for where in ASYNCHRONOUS_SERVERS),
    ("optimizer_not_sharded", SHARDED[0], "audit_shards"),
    ("weights_stay_gathered", SHARDED[1], "audit_shards"),
    ("control_sends_every_second_step", TWO | EXCHANGE, "exchange"),
    ("barrier_is_local", TWO, "control"),
    ("allgather_is_local", TWO, "control"),
]
AT_EVERY_RUN = {
    (1, None),
    (3, "audit_samples"),
    (6, "audit_evaluation"),
}  # a training to a target has most audits


SHORT = Rules(min_window_seconds=0.05, min_windows=4, min_steps=8, max_steps=400)


def launched(folder, plant, *, rules=SHORT, seconds=5.0, **fields):
    """The record of a launch of HEP-CNN with that plant in its ranks."""
    ranks, servers = fields.get("num_ranks", 1), fields.get("num_servers", 0)
    cell = Cell.model_validate(
        {
            "workload": "hep_cnn",
            "preset": "tiny",
            "framework": "torch",
            "backend": "none",
            "environment": "default",
            "scaling_mode": "weak",
            "num_ranks": ranks,
            "cores_per_rank": 1,
            "threads_per_rank": 1,
            "local_batch": 4,
            "global_batch": 4 * ranks,
            "precision": "fp32",
            "data": "sample:000000000000",
            **fields,
        }
    )
    store = Store(folder)
    store.open({})
    environment = os.environ | ALLOCATOR | {"DLSCALE_CORES_PER_RANK": "1", "DLSCALE_NUM_WORKERS": str(ranks)}
    spool = folder / "spool" / "launch"
    plants = HALOS if hasattr(halos, plant) else PLANTS
    command = [*mpiexec(), "-n", str(ranks + servers), sys.executable, str(plants), plant, str(spool)]
    spec = LaunchSpec(
        cases=[Case(cell=cell, block=0, position=0)],
        rules=rules,
        launched_at=time.monotonic(),
        boot_id=boot_id(),
        seconds=seconds,
        data=str(load_workload("hep_cnn").input("tiny").path),
        seed=3,
    )
    metadata = LaunchMetadata(
        study="planted",
        system="local",
        fingerprint=Fingerprint(digest="f", commit="c", versions={}, node={}),
        started_at="2026-11-26T00:00:00Z",
        order_seed=3,
        command=shlex.join(command),
        oversubscribed=False,
        environment_variables={},
        gates_version=GATES_VERSION,
    )
    prepared = PreparedLaunch(
        spec=spec, command=command, environment=environment, spool=spool, metadata=metadata
    )
    (record,) = supervise(prepared, store)
    return record


@pytest.mark.parametrize(
    ("plant", "fields", "gate"),
    [
        pytest.param(*fault, marks=[] if (index, fault[2]) in AT_EVERY_RUN else pytest.mark.nightly)
        for index, fault in enumerate(FAULTS)
    ],
)
def test_a_planted_fault_is_stopped_by_its_gate(tmp_path, plant, fields, gate):
    record = launched(tmp_path, plant, **fields)
    if gate is None:
        assert record.failure is None
        assert all(rank.peak_rss_bytes > 50e6 for rank in record.ranks)
        assert all(seconds is not None for seconds in record.phases.audits)
        return
    assert record.failure.kind == "gate", record.failure
    failed = {found.name for found in record.gates if not found.passed}
    assert gate in failed or record.failure.message.startswith(f"gate {gate} failed")
