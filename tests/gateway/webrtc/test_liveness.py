"""When a silent caller is suspected, and when given up."""

from __future__ import annotations

from antiphon.gateway.transports.webrtc.liveness import Life, Liveness


def test_a_caller_is_suspected_and_then_given_up() -> None:
    liveness = Liveness(5, 15)
    liveness.last = 100
    assert [liveness.state(t) for t in (100, 104.9, 105, 114.9, 115)] == [Life.ALIVE, Life.ALIVE, Life.SUSPECT, Life.SUSPECT, Life.DEAD]
    assert liveness.next_change(101) == 105
    assert liveness.next_change(106) == 115


def test_a_sign_of_life_starts_it_anew() -> None:
    liveness = Liveness(5, 15)
    liveness.last = 114
    assert liveness.state(115) is Life.ALIVE


def test_a_close_time_below_the_suspect_time_wins() -> None:
    assert Liveness(5, 2).state(2) is Life.DEAD
