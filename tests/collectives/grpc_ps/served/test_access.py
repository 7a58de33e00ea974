"""Who may call a server: those that carry the job's token, for what there is, at an address of its own."""

import socket

import pytest

from dlscale.base.errors import UsageError

pytestmark = pytest.mark.requires("grpc_ps-torch")

DENIED = (
    r"^grpc_ps: server 0 at 127\.0\.0\.1:\d+ denies access: this call does not carry the job's token; "
    r"connect with the token of the servers' launch$"
)


@pytest.fixture
def cluster(make_cluster):
    return make_cluster(num_workers=1, num_servers=1)


@pytest.mark.parametrize("token", ["", "another", "the token of this launc", "the token of this launch."])
def test_without_the_token_nothing_is_served(cluster, replica, tools, token):
    from dlscale.collectives.grpc_ps._grpc import COUNT, KEPT

    running = cluster.trainer(0, replica)
    for call in (
        lambda: cluster.trainer(0, replica, number=1, token=token),
        lambda: list(cluster.channels(token)[0].ask(COUNT, bytes(8))),
        lambda: list(cluster.channels(token)[0].ask(KEPT, bytes(8))),
    ):
        with pytest.raises(UsageError, match=DENIED):
            call()
    assert cluster.num_sessions() == [1]
    running.step()
    running.close()
    assert cluster.num_sessions() == [0]


@pytest.mark.parametrize("request_of", [bytes(8), bytes(7), b"", bytes(9)])
def test_what_is_not_trained_is_not_counted(cluster, request_of):
    from dlscale.collectives.grpc_ps._grpc import COUNT, KEPT

    for method in (COUNT, KEPT):
        with pytest.raises(RuntimeError, match=r"there is no such trainer$"):
            list(cluster.channels()[0].ask(method, request_of))


@pytest.mark.parametrize("by", ["a server", "another program"])
def test_a_port_that_is_taken_is_said(cluster, make_cluster, tools, by):
    from dlscale.collectives.grpc_ps._torch_server import Server

    other = Server(token=tools.token, num_workers=1, chunk_bytes=1024)
    with socket.socket() as taken:
        taken.bind((tools.loopback, 0))
        taken.listen()
        port = cluster.ports[0] if by == "a server" else taken.getsockname()[1]
        with pytest.raises(
            UsageError, match=rf"port {port} on 127\.0\.0\.1 is in use; give another `port`, or 0"
        ) as caught:
            other.start(tools.loopback, port)
    assert "\n" not in str(caught.value)
    other.stop()


def test_a_server_listens_where_it_was_told(cluster, tools):
    """Not on all interfaces: another address of this machine refuses the connection."""
    with socket.create_connection((tools.loopback, cluster.ports[0]), timeout=tools.seconds):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", cluster.ports[0]), timeout=tools.seconds)


@pytest.mark.parametrize("first", [b"", b"{}", bytes(40)])
def test_a_stream_that_begins_with_no_hello_is_refused(cluster, first):
    import grpc

    (channel,) = cluster.channels()
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.train(iter([first])))
    assert "the first message is no Hello" in str(channel.explain(caught.value))
    assert cluster.num_sessions() == [0]


def test_a_message_larger_than_any_chunk_ends_the_stream(cluster):
    """Before it fills the server's memory."""
    import grpc

    from dlscale.collectives.grpc_ps.messages import HEADER, MAX_HELLO_BYTES

    (channel,) = cluster.channels()
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.train(iter([bytes(MAX_HELLO_BYTES + HEADER.size + 1)])))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "\n" not in str(channel.explain(caught.value))
