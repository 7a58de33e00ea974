"""Sessions of a server that end where no stream of theirs is left to notice: they are freed all the same."""

from threading import Event

import pytest
import torch

pytestmark = pytest.mark.requires("grpc_ps-torch")


def test_it_fails_before_the_worker_that_opened_it_takes_part(make_cluster, replica, monkeypatch):
    """Another worker may come in between, with something else to train."""
    from dlscale.collectives.grpc_ps._torch_session import ServedSession

    join = ServedSession.join

    def late(self, worker):
        self.fail("worker 1 trains other weights")
        return join(self, worker)

    monkeypatch.setattr(ServedSession, "join", late)
    cluster = make_cluster(num_workers=1, num_servers=1)
    with pytest.raises(RuntimeError, match="ended the session: worker 1 trains other weights"):
        cluster.trainer(0, replica)
    assert cluster.num_sessions() == [0]


def session(*, num_workers, rate=0.1):
    from dlscale.collectives.grpc_ps.messages import OptimizerSpec, Session

    return Session(
        number=0,
        num_workers=num_workers,
        asynchronous=False,
        chunk_elements=256,
        regions=((5, 0),),
        optimizers=(OptimizerSpec(name="SGD", hyperparameters={"lr": rate}),),
    )


def hello(worker, session):
    from dlscale.collectives.grpc_ps.messages import Hello

    return Hello(worker=worker, session=session).model_dump_json().encode()


def test_a_call_is_cancelled_while_weights_are_on_their_way(make_cluster, tools):
    """gRPC then drops the answers at once, and tells later that no more requests come."""
    from dlscale.collectives.grpc_ps.messages import WEIGHTS, Chunk, pack

    cluster, dropped = make_cluster(num_workers=1, num_servers=1), Event()
    first = pack(WEIGHTS, 0, 0, Chunk(offset=0, count=5, optimizer=0), [torch.ones(5).numpy()])

    def requests():
        yield hello(0, session(num_workers=1))
        yield first
        dropped.wait(tools.seconds)
        raise RuntimeError("cancelled")

    answers = cluster.servers[0]._train(requests())
    assert next(answers) == first
    assert cluster.num_sessions() == [1]
    answers.close()
    dropped.set()
    cluster.assert_freed()


def test_the_worker_that_opened_it_leaves_before_another_does_not_fit(make_cluster):
    """As happens where another server has told the first one already."""
    from dlscale.collectives.grpc_ps.messages import RefusedError, pack_bye

    cluster = make_cluster(num_workers=2, num_servers=1)
    (server,) = cluster.servers
    left = server._train(iter([hello(1, session(num_workers=2)), pack_bye()]))
    assert list(left) == []
    assert cluster.num_sessions() == [1]
    with pytest.raises(RefusedError, match="worker 0 trains other weights, or in another way"):
        next(server._train(iter([hello(0, session(num_workers=2, rate=0.2))])))
    assert cluster.num_sessions() == [0]
