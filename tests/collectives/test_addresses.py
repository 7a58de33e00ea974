"""Where ranks listen, and which ports can be had."""

import contextlib
import socket

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.addresses import (
    LOOPBACK,
    check_free,
    free_port,
    hold_port,
    own_address,
    port_of,
    refuse_machines,
)


def test_inside_one_machine_it_is_loopback():
    assert own_address(one_machine=True) == LOOPBACK


def test_a_free_port_can_be_had_and_a_taken_one_is_told_in_one_line():
    port = free_port()
    check_free(LOOPBACK, port, backend="grpc_ps")
    with socket.create_server((LOOPBACK, port)):
        with pytest.raises(UsageError, match=f"port {port} on 127.0.0.1, which cannot be had") as told:
            check_free(LOOPBACK, port, backend="grpc_ps")
        assert "\n" not in str(told.value)


def test_a_held_port_is_free_on_every_interface_and_nobody_gets_it():
    """A port that somebody uses on another address of this machine is no port for a server on all of them."""
    with contextlib.closing(hold_port()) as held:
        port = port_of(held)
        for address in ("127.0.0.1", "127.0.0.2"):
            with contextlib.closing(socket.socket()) as other, pytest.raises(OSError, match="in use"):
                other.bind((address, port))
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_across_machines_open_ports_must_be_allowed():
    assert refuse_machines(True, backend="gloo", allowed=False)
    assert not refuse_machines(False, backend="gloo", allowed=True)
    with pytest.raises(UsageError, match="allow_open_ports"):
        refuse_machines(False, backend="gloo", allowed=False)
