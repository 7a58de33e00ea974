"""What a server does not accept: everybody in the session is told, in one line, and it is freed."""

import pytest
import torch

pytestmark = pytest.mark.requires("grpc_ps-torch")


@pytest.fixture
def make_replica(tools):
    def make(worker):
        network = tools.perceptron(seed=5 + worker)
        return tools.Replica(network, torch.optim.SGD(network.parameters(), lr=0.1), index=worker)

    return make


def send_gradient(trainer, step, times=1):
    """Of some chunk on server 0, past the trainer's own bookkeeping."""
    traffic = trainer._traffic
    traffic._gradients = [memory.copy() for memory in traffic._memory]
    traffic._step = step
    for _ in range(times):
        traffic._send(traffic._outgoing[0][0], 1)


@pytest.mark.parametrize(
    ("step", "times", "text"),
    [
        (2, 2, "worker 1 sent a gradient twice"),
        (1, 1, "worker 1 sent a gradient of step 1 for chunk 0, which has taken up its step 1"),
        (3, 1, "worker 1 sent a gradient of step 3 for chunk 0, which has taken up its step 1"),
    ],
)
def test_a_worker_that_sends_what_is_not_due(make_cluster, make_replica, tools, step, times, text):
    """With three workers: the third's gradient is missing, or the first of two would complete the mean."""
    cluster = make_cluster(num_workers=3)
    replicas = [make_replica(worker) for worker in range(3)]
    trainers = tools.together(lambda worker: cluster.trainer(worker, replicas[worker]), 3)
    tools.together(lambda worker: trainers[worker].step(), 3)
    send_gradient(trainers[1], step, times)
    with pytest.raises(RuntimeError) as caught:
        trainers[0].step()
    assert tools.one_line(caught.value).endswith(f"ended the session: {text}")
    with pytest.raises(RuntimeError, match=text):
        trainers[2].step()
    for trainer in trainers:
        trainer.close()
    cluster.assert_freed()


def test_workers_that_train_different_things(make_cluster, make_replica, tools):
    """Both are told, also the one that came first."""
    cluster, errors = make_cluster(), []
    replicas = [make_replica(worker) for worker in range(2)]
    replicas[1].optimizer.param_groups[0]["lr"] = 0.2

    def connect(worker):
        try:
            cluster.trainer(worker, replicas[worker])
        except RuntimeError as error:
            errors.append(tools.one_line(error))

    tools.together(connect, 2)
    assert len(errors) == 2
    assert all("trains other weights, or in another way" in error for error in errors)
    cluster.assert_freed()


def test_too_many_trainers(make_cluster, make_replica, tools):
    from dlscale.collectives.grpc_ps._torch_server import MAX_SESSIONS

    cluster = make_cluster(num_workers=1)
    trainers = [cluster.trainer(0, make_replica(0), number=number) for number in range(MAX_SESSIONS)]
    with pytest.raises(RuntimeError, match=f"there are {MAX_SESSIONS} trainers open; close one") as caught:
        cluster.trainer(0, make_replica(0), number=MAX_SESSIONS)
    tools.one_line(caught.value)
    for trainer in trainers:
        trainer.step()
        trainer.close()
    cluster.assert_freed()


def test_an_optimizer_that_fails_on_the_servers(make_cluster, make_replica, tools):
    cluster, replica = make_cluster(num_workers=1), make_replica(0)
    parameters = replica.network.parameters()
    replica.objectives[0].optimizer = torch.optim.Adam(parameters, capturable=True)
    trainer = cluster.trainer(0, replica)
    with pytest.raises(RuntimeError, match="ended the session: Adam: If capturable=True") as caught:
        trainer.step()
    tools.one_line(caught.value)
    trainer.close()
    cluster.assert_freed()
