"""The contract runs on the ranks of one mpiexec; tests/mpi starts it for several numbers of ranks."""

import functools
import gc
import json
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

from dlscale.benchmarks.rank.audit import ReplayAudit
from dlscale.benchmarks.rank.deviation import bounds_for
from dlscale.benchmarks.rank.gates import update_gates
from dlscale.benchmarks.rank.process import local_rank
from dlscale.benchmarks.rank.reference import AuditedTraining
from dlscale.collectives import NAMES, capabilities, with_capability
from dlscale.collectives.registry import connect
from dlscale.models import load_workload
from dlscale.models.frameworks import FRAMEWORKS, gpu_module
from dlscale.models.workload import Execution, Input, Shard

UNDER_MPIEXEC = "DLSCALE_UNDER_MPIEXEC" in os.environ

# Backends with servers, and those that a process can connect only once, have launches of their own.
OWN_LAUNCH = [name for name in NAMES if capabilities(name).servers or capabilities(name).once]
BACKENDS = os.environ.get("DLSCALE_CONTRACT_BACKENDS", ",".join(n for n in NAMES if n not in OWN_LAUNCH))
NUM_SERVERS = int(os.environ.get("DLSCALE_CONTRACT_SERVERS", "0"))


def pairs(*, exchanging):
    """(backend, framework) pairs that this launch tests, as parameters that are skipped where they are missing."""
    rows = [capabilities(name) for name in BACKENDS.split(",")]
    return [
        pytest.param((row.name, framework), id=f"{row.name}-{framework}", marks=mark(row.name, framework))
        for row in rows
        for framework in FRAMEWORKS
        if framework in row.frameworks and (row.exchanges or not exchanging)
    ]


def pytest_configure(config):
    config.addinivalue_line("markers", "exchanging: `any_pair` is only of backends that exchange gradients")
    config.addinivalue_line("markers", "on_ranks(*sizes): left out of launches of another number of ranks")


WHOLE_FILE = re.compile(r"^pytestmark = pytest\.mark\.on_ranks\((.*)\)$", re.MULTILINE)


def pytest_ignore_collect(collection_path):
    """Leave out a whole file before it is imported: TensorFlow and Keras take seconds on every rank."""
    if collection_path.name.startswith("test_") and (found := WHOLE_FILE.search(collection_path.read_text())):
        return None if shows(*map(int, found[1].split(","))) else True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave out what other numbers of ranks show already; several marks on one test must all allow this number."""
    kept = [item for item in items if all(shows(*mark.args) for mark in item.iter_markers("on_ranks"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def shows(*sizes):
    """Whether a test marked with these numbers of ranks runs in this launch; on GPUs, all do on more than 3."""
    size = int(os.environ.get("DLSCALE_UNDER_MPIEXEC", "0"))
    return size in sizes or ("DLSCALE_CONTRACT_DEVICE" in os.environ and size > 3)


def pytest_generate_tests(metafunc):
    if "any_pair" in metafunc.fixturenames:
        exchanging = metafunc.definition.get_closest_marker("exchanging") is not None
        metafunc.parametrize("any_pair", pairs(exchanging=exchanging))
    if "any_served_pair" in metafunc.fixturenames:
        metafunc.parametrize("any_served_pair", [p for p in pairs(exchanging=True) if NUM_SERVERS])
    if "any_collective" in metafunc.fixturenames:
        metafunc.parametrize("any_collective", COMMUNICATING, scope="module")


def device_of(backend):
    """What the backend is tested on: the first device that it works on, or the launch's."""
    return os.environ.get("DLSCALE_CONTRACT_DEVICE") or capabilities(backend).devices[0]


def mark(backend, framework):
    return pytest.mark.requires(f"{backend}-{framework}")


COMMUNICATING = [pytest.param(name, marks=mark(name, "torch")) for name in with_capability("collective")]


if not UNDER_MPIEXEC:
    collect_ignore_glob = ["test_*.py"]


def pytest_terminal_summary(terminalreporter):
    if not UNDER_MPIEXEC:
        terminalreporter.write_line("tests/contract: not collected here; tests/mpi runs it under mpiexec")


@pytest.fixture(scope="session")
def job():
    """Workers and servers, where this launch has servers; rank_pytest.py lets those serve."""
    from mpi4py import MPI

    from dlscale.collectives.job import split

    found = split(MPI.COMM_WORLD, num_servers=NUM_SERVERS) if NUM_SERVERS else None
    yield found
    if found:
        found.order(do="end")


@pytest.fixture(scope="session")
def world(job):
    """The control plane: all ranks of this launch that are no servers.

    With another MPI's mpiexec every rank would be alone in a world of its own, and pass.
    """
    from mpi4py import MPI

    # Gloo's backend collects what is unreachable whenever it closes: the frameworks' own objects need not be looked at.
    # Some were imported since the tests were collected (tests/conftest.py), to see what is missing.
    gc.collect()
    gc.freeze()
    gc.enable()  # rank_pytest.py has switched it off
    world = job.workers if job else MPI.COMM_WORLD
    assert world.Get_size() == int(os.environ["DLSCALE_UNDER_MPIEXEC"])
    return world


@pytest.fixture
def shard(world):
    """This rank's part of the samples."""
    return Shard(index=world.Get_rank(), count=world.Get_size())


def make_factory(framework, name="hep_cnn", *, synthetic=True, **computing):
    """What builds tiny replicas."""
    workload = load_workload(name)
    source = Input() if synthetic else workload.input("tiny")
    return workload.factory(
        framework=framework, preset="tiny", local_batch=2, source=source, execution=Execution(**computing)
    )


@pytest.fixture
def gates(world, shard):
    """gates(backend, factory): what gates find, by name."""

    def found(backend, factory):
        results = update_gates(backend, factory, control=world, shard=shard, seed=5, precision="fp32")
        return {result.name: result for result in results}

    return found


@pytest.fixture
def verdicts(gates):
    """The same, only whether they passed."""
    return lambda *given: {name: result.passed for name, result in gates(*given).items()}


def audit_steps(audit, trainer, num_steps, harm=lambda _: None, *, meet=lambda: None):
    """One audited window of so many steps and one step, `harm` before them; the gates by name.

    Ranks `meet` before and after the window.
    """
    audit.begin(1, num_steps=num_steps)
    audit.before(0)
    meet()
    harm(trainer)
    for _ in range(num_steps):
        trainer.step()
    meet()
    audit.count(num_steps)
    audit.after(0)
    audit.end()
    trainer.synchronize()
    return {gate.name: gate for gate in audit.gates()}


@pytest.fixture
def audits(audited_training, world, shard):
    """audits(backend, factory, num_steps): {gate: value} of a training on servers, where anything was looked at."""

    def found(backend, factory, num_steps):
        trainer = backend.distribute(factory, shard=shard, seed=11 + shard.index)
        audit = ReplayAudit(audited_training(trainer, backend, factory))
        trainer.step()  # optimizers make what they keep
        audit.count(1)
        world.Barrier()
        gates = audit_steps(audit, trainer, num_steps, meet=world.Barrier)
        trainer.close()
        assert all(gate.passed for gate in gates.values())
        return {name: gate.value for name, gate in gates.items() if gate.value is not None}

    return found


@pytest.fixture
def audited_training(world, shard):
    """audited_training(trainer, backend, factory): the training as audits see it."""

    def made(trainer, backend, factory):
        compressed = backend.compressor is not None
        return AuditedTraining(
            trainer=trainer,
            backend=backend,
            make_reference=lambda: factory(shard=shard, seed=11 + shard.index),
            control=world,
            shard=shard,
            bounds=bounds_for(
                precision="fp32",
                compressed=compressed,
                device=device_of(backend.capabilities.name),
            ),
        )

    return made


def widened(values, dtype):
    """In float32 what a ring has as half precision; bfloat16 is the upper half of float32."""
    if dtype == "bfloat16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32) if dtype == "float16" else values


def narrowed(values, dtype):
    """Rounded to nearest, ties to even."""
    if dtype == "float16":
        return values.astype(np.float16)
    if dtype != "bfloat16":
        return values
    bits = values.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), (bits >> 16).astype(np.uint16) | np.uint16(0x40), rounded)


class Broken:
    """A backend whose trainers multiply the gradient of parameter `index` by `harm(index, shard)`."""

    def __init__(self, backend, harm):
        self._backend, self._harm = backend, harm

    def __getattr__(self, name):
        return getattr(self._backend, name)

    def distribute(self, factory, *, shard, **how):
        def harmed(**arguments):
            replica = factory(**arguments)
            harm = self._harm_torch if replica.framework == "torch" else self._harm_tensorflow
            harm(replica, shard)
            return replica

        return self._backend.distribute(harmed, shard=shard, **how)

    def _harm_torch(self, replica, shard):
        for index, parameter in enumerate(replica.objectives[0].parameters):
            factor = self._harm(index, shard)
            parameter.register_hook(lambda gradient, factor=factor: gradient * factor)

    def _harm_tensorflow(self, replica, shard):
        differentiate = replica.differentiate

        def harmed(*batch, **options):
            losses, (gradients, *others), updates = differentiate(*batch, **options)
            wrong = [g * self._harm(index, shard) for index, g in enumerate(gradients)]
            return losses, [wrong, *others], updates

        replica.differentiate = harmed


@pytest.fixture(scope="session")
def connected_once(world):
    """Backends that a process can connect only once; closed when all tests have ended."""
    opened = {}
    yield opened
    for backend in opened.values():
        backend.close()


@pytest.fixture
def connected(world, job, connected_once):
    """connected(backend, framework, options, ...): a backend of this launch, closed when the test ends."""
    opened = []

    def open_one(name, framework, options=None, **algorithm):
        if capabilities(name).once:
            if (name, framework) not in connected_once:
                connected_once[name, framework] = connect_pair(
                    name, framework, world, job, options, **algorithm
                )
            return connected_once[name, framework]
        opened.append(connect_pair(name, framework, world, job, options, **algorithm))
        return opened[-1]

    yield open_one
    for backend in opened:
        backend.close()
    if world.Get_rank() == 0:
        assert not list(Path(tempfile.gettempdir()).glob("dlscale-*")), "a backend left something behind"


@pytest.fixture
def device(any_pair):
    """What the pair of this test is tested on."""
    return device_of(any_pair[0])


@functools.cache
def take_gpu(framework):
    """This rank's own, for the whole launch: before the framework computes anything. Ranks share one that is alone."""
    gpus = gpu_module(framework)
    gpus.take(local_rank() if len(gpus.names()) > 1 else 0)
    if (
        framework == "torch"
    ):  # cuDNN's fastest algorithms add up in another order each time, and tests compare bits
        import torch

        torch.backends.cudnn.deterministic = True


def connect_pair(name, framework, world, job, options=None, **algorithm):
    if device_of(name) == "gpu":
        take_gpu(framework)
        options = {**({"operations": "nccl"} if name == "horovod" else {}), **(options or {})}
    options = {**json.loads(os.environ.get("DLSCALE_CONTRACT_OPTIONS", "{}")), **(options or {})}
    if job:
        job.order(do="serve", backend=name, framework=framework, options=options, **algorithm)
    return connect(name, control=world, framework=framework, options=options, job=job, **algorithm)
