"""Trainings whose ranks each have something of their own: saved, and resumed to the same bits on every rank."""

from pathlib import Path

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank.audit import ReplayAudit
from dlscale.benchmarks.rank.checkpoints import TrainingRun, check_can_resume, load_checkpoint
from dlscale.benchmarks.rank.measure import CommunicatorControl
from dlscale.collectives.registry import connect

from .conftest import audit_steps, make_factory

pytestmark = pytest.mark.on_ranks(2)

IN_TENSORFLOW = pytest.mark.requires("ring-tensorflow")
SAVED, REST = 3, 4  # steps before and after

# Saved after an exchange, and with a velocity.
ROUNDS = [
    pytest.param("mpi", "torch", "easgd", {"interval": 2}, id="easgd"),
    pytest.param("mpi", "torch", "easgd", {"interval": 3, "momentum": 0.5}, id="eamsgd"),
    pytest.param(
        "ring", "tensorflow", "easgd", {"interval": 2}, id="easgd-in-tensorflow", marks=IN_TENSORFLOW
    ),
]
COMPRESSED = [
    pytest.param("mpi", "torch", {"compression": "topk", "topk_share": 0.05}, id="topk"),
    pytest.param("ring", "torch", {"compression": "qsgd", "teams": 2}, id="qsgd"),
    pytest.param("mpi", "torch", {"compression": "fp16", "check_every": 2}, id="fp16"),
    pytest.param("mpi", "tensorflow", {"compression": "qsgd"}, id="qsgd-in-tensorflow", marks=IN_TENSORFLOW),
]


@pytest.fixture
def folder(world, tmp_path):
    """The same for all ranks."""
    return Path(world.bcast(str(tmp_path))) / "case"


@pytest.fixture
def distributed(world, shard):
    """distributed(backend, framework, seed=...): a trainer of a backend that is closed when the test ends."""
    opened = []

    def make(name, framework, options=None, *, seed, **algorithm):
        backend = connect(name, control=world, framework=framework, options=options or {}, **algorithm)
        check_can_resume(backend)
        opened.append(backend)
        return backend, backend.distribute(
            make_factory(framework, synthetic=False), shard=shard, seed=seed + shard.index
        )

    yield make
    for backend in opened:
        backend.close()


def run_of(trainer, folder, world, events):
    control = CommunicatorControl(world)
    return TrainingRun(trainer, SAVED, folder, control=control, world=world, write=events.append)


def everything(trainer):
    trainer.synchronize()
    return trainer.state() | trainer.own_state()


def saved_and_trained_on(trainer, folder, world):
    """What this rank has at the end of a training that was saved in its midst."""
    events = []
    run = run_of(trainer, folder, world, events)
    for _ in range(SAVED):
        trainer.step()
    run.passed(SAVED)
    for _ in range(REST):
        trainer.step()
    expected = everything(trainer)
    trainer.close()
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["step-0000000003.rank-1.safetensors", "step-0000000003.safetensors"]
    if world.Get_rank() == 0:
        assert events[0].num_bytes == sum(path.stat().st_size for path in folder.iterdir())
    return expected


def differing(expected, found):
    assert sorted(expected) == sorted(found)
    return [name for name in expected if not np.array_equal(expected[name], found[name])]


@pytest.mark.parametrize(("name", "framework", "algorithm", "options"), ROUNDS)
def test_rounds_arrive_at_the_same_bits(
    name, framework, algorithm, options, distributed, audited_training, folder, world, shard
):
    algorithm = {"algorithm": algorithm, "algorithm_options": options}
    backend, trainer = distributed(name, framework, seed=11, **algorithm)
    expected = saved_and_trained_on(trainer, folder, world)
    learnt = world.allgather(
        [value.tobytes() for key, value in expected.items() if key.startswith("network")]
    )
    assert learnt[0] != learnt[1], "each rank has weights of its own"

    other = backend.distribute(make_factory(framework, synthetic=False), shard=shard, seed=11 + shard.index)
    assert run_of(other, folder, world, []).step == SAVED
    if framework == "torch" and not other.velocity():  # with momentum there are no audits
        audit = ReplayAudit(audited_training(other, backend, make_factory("torch", synthetic=False)))
        gates = audit_steps(audit, other, REST - 1)
        assert [name for name, gate in gates.items() if not gate.passed] == []
    else:
        for _ in range(REST):
            other.step()
    assert differing(expected, everything(other)) == []
    other.close()


@pytest.mark.parametrize(("name", "framework", "options"), COMPRESSED)
def test_compressed_gradients_leave_over_the_same(
    name, framework, options, distributed, folder, world, shard
):
    backend, trainer = distributed(name, framework, options, seed=11)
    expected = saved_and_trained_on(trainer, folder, world)
    other = backend.distribute(make_factory(framework, synthetic=False), shard=shard, seed=11 + shard.index)
    assert run_of(other, folder, world, []).step == SAVED
    for _ in range(REST):
        other.step()
    assert differing(expected, everything(other)) == []
    other.close()


def test_a_state_of_something_else_is_one_line(distributed, folder, world, shard):
    _, trainer = distributed("mpi", "torch", {"compression": "topk"}, seed=3)
    saved_and_trained_on(trainer, folder, world)
    _, rounds = distributed("mpi", "torch", seed=3, algorithm="easgd", algorithm_options={})
    with pytest.raises(
        UsageError, match=r"belongs to another training \(.*\); delete it, and the training begins anew"
    ):
        run_of(rounds, folder, world, [])
    rounds.close()
    world.Barrier()
    path = folder / "step-0000000003.rank-1.safetensors"
    if shard.index == 1:
        path.write_bytes(path.read_bytes()[:500])
    world.Barrier()
    if shard.index == 1:
        with pytest.raises(
            UsageError, match=r"rank-1.safetensors cannot be read .*; delete .*/case, and the"
        ):
            load_checkpoint(folder, step=SAVED, rank=1)
