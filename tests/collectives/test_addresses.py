"""Where ranks listen, and which ports can be had."""

import socket

import pytest

from dlscale.collectives.addresses import (
    LOOPBACK,
    check_free,
    free_port,
    own_address,
    refuse_machines,
)
from dlscale.models.errors import UsageError


def test_inside_one_machine_it_is_loopback():
    assert own_address(one_machine=True) == LOOPBACK


def test_a_free_port_can_be_had_and_a_taken_one_is_told_in_one_line():
    port = free_port(LOOPBACK)
    check_free(LOOPBACK, port, backend="grpc_ps")
    with socket.create_server((LOOPBACK, port)):
        with pytest.raises(UsageError, match=f"port {port} on 127.0.0.1, which cannot be had") as told:
            check_free(LOOPBACK, port, backend="grpc_ps")
        assert "\n" not in str(told.value)


def test_across_machines_open_ports_must_be_allowed():
    assert refuse_machines(True, backend="gloo", allowed=False)
    assert not refuse_machines(False, backend="gloo", allowed=True)
    with pytest.raises(UsageError, match="--allow-open-ports"):
        refuse_machines(False, backend="gloo", allowed=False)
