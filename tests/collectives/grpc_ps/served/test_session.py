"""A trainer as a server sees it, without a network: who may send what and when."""

from queue import Empty

import numpy as np
import pytest

from dlscale.collectives.grpc_ps._torch_session import ServedSession
from dlscale.collectives.grpc_ps.messages import (
    GRADIENT,
    WEIGHTS,
    OptimizerSpec,
    RefusedError,
    Session,
    pack,
    pack_bye,
    unpack,
)

pytestmark = pytest.mark.requires("grpc_ps-torch")

FIRST = np.array([1, 2, 3, 4, 5], dtype=np.float32)


class Workers:
    """A session of five weights in chunks of four and one, SGD of rate 1, and what its workers do."""

    def __init__(self, num_workers=2, *, asynchronous=False):
        spec = OptimizerSpec(name="SGD", hyperparameters={"lr": 1.0})
        self.served = ServedSession(
            Session(
                number=0,
                num_workers=num_workers,
                asynchronous=asynchronous,
                chunk_elements=4,
                regions=((5, 0),),
                optimizers=(spec,),
            )
        )
        (self.layout, self.outboxes) = self.served._layout, {}

    def join(self, *workers):
        for worker in workers:
            self.outboxes[worker] = self.served.join(worker)

    def send(self, worker, kind, index, *, step=0, value=None):
        chunk = self.layout[index]
        place = slice(chunk.offset, chunk.offset + chunk.count)
        values = FIRST[place] if value is None else np.full(chunk.count, value, dtype=np.float32)
        return self.served.take(worker, pack(kind, index, step, chunk, [values]))

    def load(self):
        for index in range(2):
            self.send(0, WEIGHTS, index)

    def got(self, worker):
        """(step, chunk, values) of everything that waits for a worker."""
        found = []
        while True:
            try:
                raw = self.outboxes[worker].get_nowait()
            except Empty:
                return found
            message = raw and unpack(raw, self.layout)
            found.append(message and (message.step, message.chunk, message.values.tolist()))


@pytest.fixture
def started():
    workers = Workers()
    workers.join(0, 1)
    workers.load()
    assert workers.got(0) == workers.got(1) == [(0, 0, [1, 2, 3, 4]), (0, 1, [5])]
    return workers


@pytest.mark.parametrize("loads", ["before", "between", "after"])
def test_first_weights_wait_for_all_workers(loads):
    workers = Workers()
    workers.join(0)
    workers.load() if loads == "before" else None
    assert workers.got(0) == []
    workers.send(0, WEIGHTS, 0) if loads == "between" else None
    workers.join(1)
    workers.send(0, WEIGHTS, 1) if loads == "between" else None
    workers.load() if loads == "after" else None
    assert workers.got(0) == workers.got(1) == [(0, 0, [1, 2, 3, 4]), (0, 1, [5])]


def test_a_chunk_moves_when_its_last_gradient_comes(started):
    started.send(1, GRADIENT, 1, step=1, value=3)
    started.send(1, GRADIENT, 0, step=1, value=2)
    assert started.got(0) == started.got(1) == []
    started.send(0, GRADIENT, 1, step=1, value=1)
    assert started.got(0) == started.got(1) == [(1, 1, [5 - (1 + 3) / 2])]
    assert started.served.num_applied() == 0  # a chunk is missing
    started.send(0, GRADIENT, 0, step=1, value=0)
    assert started.got(0) == [(1, 0, [0, 1, 2, 3])]
    assert started.served.num_applied() == 2


def test_asynchronous_each_worker_moves_it_alone():
    workers = Workers(asynchronous=True)
    workers.join(0, 1)
    workers.load()
    workers.got(0), workers.got(1)
    for step in (1, 2):
        workers.send(1, GRADIENT, 1, step=step, value=1)
    workers.send(0, GRADIENT, 1, step=1, value=1)
    assert workers.got(1) == [(1, 1, [4]), (2, 1, [3])]
    assert workers.got(0) == [(1, 1, [2])]
    for step in (1, 2):
        workers.send(1, GRADIENT, 0, step=step, value=1)
    assert workers.served.num_applied() == 3 // 2 + 2 // 2


@pytest.mark.parametrize(
    ("worker", "kind", "step", "text"),
    [
        pytest.param(0, WEIGHTS, 0, "worker 0 sent weights at step 0; only worker 0 may", id="weights twice"),
        pytest.param(
            1, WEIGHTS, 0, "worker 1 sent weights at step 0; only worker 0 may", id="worker 1's weights"
        ),
        pytest.param(0, WEIGHTS, 1, "worker 0 sent weights at step 1", id="weights later"),
        pytest.param(0, GRADIENT, 0, "gradient of step 0 .* taken up its step 0", id="step 0"),
        pytest.param(0, GRADIENT, 2, "gradient of step 2 .* taken up its step 0", id="a step left out"),
        pytest.param(0, GRADIENT, (1 << 64) - 1, "gradient of step 18446744073709551615", id="largest step"),
    ],
)
def test_what_may_not_come_now_is_refused(started, worker, kind, step, text):
    with pytest.raises(RefusedError, match=text):
        started.send(worker, kind, 0, step=step, value=1)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_gradient_that_comes_twice_is_refused(asynchronous):
    workers = Workers(asynchronous=asynchronous)
    workers.join(0, 1)
    workers.load()
    workers.send(1, GRADIENT, 0, step=1, value=1)
    with pytest.raises(RefusedError, match="worker 1 sent a gradient"):
        workers.send(1, GRADIENT, 0, step=1, value=1)


def test_a_gradient_before_the_weights_is_refused():
    workers = Workers()
    workers.join(0, 1)
    with pytest.raises(RefusedError, match="which has taken up its step -1"):
        workers.send(0, GRADIENT, 0, step=0, value=1)


def test_who_never_takes_the_weights_is_refused():
    """Or its messages would fill the server's memory."""
    workers = Workers(num_workers=1, asynchronous=True)
    workers.join(0)
    workers.load()
    workers.send(0, GRADIENT, 0, step=1, value=1)
    with pytest.raises(RefusedError, match="worker 0 sends gradients without taking the weights"):
        workers.send(0, GRADIENT, 0, step=2, value=1)


def test_it_ends_when_all_have_left(started):
    assert started.served.take(1, pack_bye()) is False
    assert started.got(1) == [None]
    assert started.got(0) == []
    assert not started.served.has_ended()
    assert started.served.take(0, pack_bye()) is False
    assert started.served.has_ended()
    assert started.served.failure is None


def test_who_left_before_a_step_is_missed(started):
    started.served.take(1, pack_bye())
    with pytest.raises(RefusedError, match="worker 1 has closed its trainer, and others still step"):
        started.send(0, GRADIENT, 0, step=1, value=1)


def test_asynchronous_nobody_is_missed():
    workers = Workers(asynchronous=True)
    workers.join(0, 1)
    workers.load()
    workers.got(0)
    workers.served.take(1, pack_bye())
    workers.send(0, GRADIENT, 1, step=1, value=1)
    assert workers.got(0) == [(1, 1, [4])]


def test_a_failure_ends_all_streams_and_the_first_text_stays(started):
    started.served.fail("the first")
    started.served.fail("another")
    assert started.served.failure == "the first"
    assert started.served.has_ended()
    assert None in started.got(0)
    assert None in started.got(1)
