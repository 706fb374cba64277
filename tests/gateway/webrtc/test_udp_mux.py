"""The shared port: where it is bound, and what callers are told."""

from __future__ import annotations

import socket

import pytest
from antiphon.gateway.transports.webrtc.udp_mux import UdpMux, _own_addresses


async def test_one_address_is_bound_and_named() -> None:
    mux = UdpMux("127.0.0.1", 0)
    assert [(c.host, c.port) for c in mux.candidates] == [("127.0.0.1", mux.port)]
    mux.close()


async def test_every_address_of_the_machine_is_bound_on_one_port() -> None:
    mux = UdpMux("0.0.0.0", 0)
    assert {c.port for c in mux.candidates} == {mux.port}
    assert [c.host for c in mux.candidates] == _own_addresses()
    assert mux.candidates[-1].host == "127.0.0.1"
    mux.close()


async def test_callers_are_told_the_advertised_addresses() -> None:
    mux = UdpMux("0.0.0.0", 0, ["203.0.113.5", "198.51.100.5"])
    assert [c.host for c in mux.candidates] == ["203.0.113.5", "198.51.100.5"]
    assert len(mux._sockets) == 1
    mux.close()


async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="in use"):
            UdpMux("127.0.0.1", taken.getsockname()[1])
