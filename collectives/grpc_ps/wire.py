"""What both ends of a gRPC channel agree on."""

from __future__ import annotations

from dlscale.collectives.grpc_ps.messages import HEADER, MAX_HELLO_BYTES

TRAIN = "/dlscale.ParameterServer/Train"  # a stream per trainer
COUNT = "/dlscale.ParameterServer/Count"  # num_applied of a session
TOKEN = "dlscale-token"  # the metadata's key  # noqa: S105

Channel = list[tuple[str, int | str]]


def channel_options(chunk_bytes: int) -> Channel:
    """Of clients and servers alike. No message is larger than a chunk, so none can fill a peer's memory."""
    return [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", max(chunk_bytes, MAX_HELLO_BYTES) + HEADER.size),
        ("grpc.optimization_target", "throughput"),
        ("grpc.http2.max_frame_size", (1 << 24) - 1),  # 16 KiB unless told
        ("grpc.http2.write_buffer_size", 1 << 22),
    ]


def server_options(chunk_bytes: int) -> Channel:
    """Two servers must not share a port without knowing."""
    return [*channel_options(chunk_bytes), ("grpc.so_reuseport", 0)]


def client_options(chunk_bytes: int) -> Channel:
    """Workers speak with servers, not with a site's proxy."""
    return [*channel_options(chunk_bytes), ("grpc.enable_http_proxy", 0)]
