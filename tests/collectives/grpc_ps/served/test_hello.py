"""A stream's first message: what a server believes of it."""

import json

import pytest

from dlscale.collectives.grpc_ps.messages import RefusedError, read_hello

pytestmark = pytest.mark.requires("grpc_ps-torch")

SESSION = {
    "number": 3,
    "num_workers": 2,
    "asynchronous": False,
    "chunk_elements": 256,
    "regions": [[10, 0], [5, 1]],
    "optimizers": [
        {"name": "SGD", "hyperparameters": {"lr": 0.5, "nesterov": False}},
        {"name": "Adam", "hyperparameters": {"lr": 1, "betas": [0.9, 0.99], "foreach": None}},
    ],
}


def hello(*, worker=1, **changes):
    return json.dumps({"worker": worker, "session": SESSION | changes}).encode()


def read(raw):
    return read_hello(raw, num_workers=2, chunk_elements=256)


def test_it_says_what_a_worker_trains():
    found = read(hello())
    assert (found.worker, found.session.number, found.session.asynchronous) == (1, 3, False)
    assert [(region.count, region.optimizer) for region in found.session.layout()] == [(10, 0), (5, 1)]


def test_what_is_written_is_read():
    found = read(hello())
    again = read(found.model_dump_json().encode())
    assert again == found
    sgd, adam = again.session.optimizers
    assert sgd.hyperparameters["nesterov"] is False
    assert adam.hyperparameters == {"lr": 1, "betas": (0.9, 0.99), "foreach": None}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff\x00", id="no text"),
        pytest.param(b"{", id="no JSON"),
        pytest.param(b"[]", id="no object"),
        pytest.param(hello()[:-1], id="cut short"),
        pytest.param(b'{"worker": 0}', id="without a session"),
        pytest.param(hello(worker=-1), id="negative worker"),
        pytest.param(hello(worker=True), id="a truth value for a worker"),
        pytest.param(hello(worker="1"), id="text for a worker"),
        pytest.param(hello(number=1 << 63), id="number of more than 63 bits"),
        pytest.param(hello(number=0.0), id="number with a point"),
        pytest.param(hello(asynchronous=1), id="a number for a truth value"),
        pytest.param(hello(regions=[[0, 0]]), id="a region without elements"),
        pytest.param(hello(regions=[[4, 0, 0]]), id="a region of three"),
        pytest.param(hello(regions=[[4, -1]]), id="a negative optimizer"),
        pytest.param(hello(optimizers=[{"name": "LBFGS", "hyperparameters": {}}]), id="unknown optimizer"),
        pytest.param(
            hello(optimizers=[{"name": "SGD", "hyperparameters": {"lr": {}}}]), id="nested hyperparameter"
        ),
        pytest.param(hello(extra=1), id="a field too many"),
    ],
)
def test_what_is_no_hello_is_refused_in_one_line(raw):
    with pytest.raises(RefusedError, match=r"^the first message is no Hello: \d+ errors in it$"):
        read(raw)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (hello(worker=2), "worker 2 of 2, but there are 2"),
        (hello(num_workers=3), "worker 1 of 3, but there are 2"),
        (hello(chunk_elements=512), "chunks of 512 elements; the servers' are 256"),
        (hello(regions=[]), "there are no weights"),
        (hello(regions=[[10, 2]]), "some have no optimizer"),
        (hello(optimizers=[]), "some have no optimizer"),
    ],
)
def test_what_does_not_fit_the_launch_is_refused(raw, text):
    with pytest.raises(RefusedError, match=text):
        read(raw)
