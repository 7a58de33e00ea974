"""What a server does not accept: everybody in the session is told, in one line, and it is freed."""

import pytest

pytestmark = pytest.mark.requires("grpc_ps-torch")


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
