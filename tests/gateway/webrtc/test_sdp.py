"""Offers read, refused and answered."""

from __future__ import annotations

import dataclasses

import pytest
from aiortc import sdp as other
from antiphon.gateway.transports.webrtc import sdp
from antiphon.gateway.transports.webrtc.errors import BadOffer
from antiphon.gateway.transports.webrtc.limits import WebRtcLimits
from antiphon.gateway.transports.webrtc.udp_mux import LocalCandidate
from antiphon.tests.gateway.webrtc.offers import CHROMIUM, FINGERPRINT, FIREFOX
from hypothesis import given, settings
from hypothesis import strategies as st

LIMITS = WebRtcLimits()
LOCAL = sdp.Local(
    session_id=7,
    ufrag="abcd",
    password="p" * 22,
    fingerprints=(sdp.Fingerprint("sha-256", FINGERPRINT),),
    candidates=(LocalCandidate("192.0.2.1", 4000), LocalCandidate("192.0.2.2", 4000)),
    ssrc=99,
    cname="us",
)


def answer_to(offer: str) -> str:
    return sdp.write_answer(sdp.parse_offer(offer, LIMITS), LOCAL)


def test_chromiums_offer_is_read() -> None:
    offer = sdp.parse_offer(CHROMIUM, LIMITS)
    assert offer.codec == sdp.Codec(name="opus", payload_type=111, red_type=63)
    assert (offer.ufrag, offer.password) == ("Pl1Y", "mF4tVGhWKfQ8m2z0sVbDLw8e")
    assert offer.fingerprints == (sdp.Fingerprint("sha-256", FINGERPRINT),)
    assert (offer.dtls_role, offer.sctp_port, offer.max_message_size) == ("client", 5000, 262_144)
    assert offer.sends
    assert offer.receives


def test_firefoxs_offer_with_its_fingerprint_at_the_session_is_read() -> None:
    offer = sdp.parse_offer(FIREFOX, LIMITS)
    assert offer.codec == sdp.Codec(name="opus", payload_type=109)
    assert offer.max_message_size == 1_073_741_823


def test_the_answer_asks_for_redundant_audio_and_in_band_fec_but_not_for_dtx() -> None:
    answer = answer_to(CHROMIUM)
    assert "m=audio 4000 UDP/TLS/RTP/SAVPF 63 111\r\n" in answer
    assert "a=fmtp:63 111/111\r\n" in answer
    assert "a=fmtp:111 minptime=10;useinbandfec=1" in answer
    assert "usedtx" not in answer


def test_another_implementation_understands_the_answer() -> None:
    for offer in (CHROMIUM, FIREFOX):
        read = other.SessionDescription.parse(answer_to(offer))
        audio, data = read.media
        assert audio.dtls is not None
        assert audio.dtls.role == "client"
        assert (audio.ice.usernameFragment, data.ice.usernameFragment) == ("abcd", "abcd")
        assert [(c.ip, c.port) for c in audio.ice_candidates] == [("192.0.2.1", 4000), ("192.0.2.2", 4000)]
        assert data.sctpCapabilities is not None
        assert data.sctpCapabilities.maxMessageSize == sdp.LOCAL_MESSAGE_SIZE
        assert read.group[0].items == ["0", "1"]


def test_nothing_of_the_offers_candidates_is_in_the_answer() -> None:
    assert "198.51.100.7" not in answer_to(CHROMIUM)
    assert "5a.local" not in answer_to(CHROMIUM)


def test_other_sections_are_refused_in_their_place() -> None:
    video = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:v\r\na=rtpmap:96 VP8/90000\r\n"
    head, audio, data = CHROMIUM.split("m=audio")[0], *("m=audio" + CHROMIUM.split("m=audio")[1]).split("m=application")
    answer = answer_to(head.replace("BUNDLE 0 1", "BUNDLE v 0 1") + video + audio + "m=application" + data)
    sections = answer.split("m=")[1:]
    assert [section.split()[0] for section in sections] == ["video", "audio", "application"]
    assert sections[0].startswith("video 0 ")
    assert "a=group:BUNDLE 0 1\r\n" in answer


@pytest.mark.parametrize(("offered", "answered"), [("sendonly", "recvonly"), ("recvonly", "sendonly"), ("inactive", "inactive")])
def test_directions_are_mirrored(offered: str, answered: str) -> None:
    answer = answer_to(CHROMIUM.replace("a=sendrecv", f"a={offered}"))
    assert f"a={answered}\r\n" in answer
    assert ("a=msid" in answer.split("m=audio")[1]) is (answered == "sendonly")


def test_g711_is_taken_where_there_is_no_opus() -> None:
    offer = CHROMIUM.replace("111 63 9 0 8 13 110 126", "9 0 8")
    assert sdp.parse_offer(offer, LIMITS).codec == sdp.Codec(name="PCMU", payload_type=0)
    assert "a=rtpmap:0 PCMU/8000\r\n" in answer_to(offer)
    offer = CHROMIUM.replace("111 63 9 0 8 13 110 126", "8")
    assert sdp.parse_offer(offer, LIMITS).codec == sdp.Codec(name="PCMA", payload_type=8)


def test_redundant_audio_can_be_switched_off() -> None:
    offer = sdp.parse_offer(CHROMIUM, dataclasses.replace(LIMITS, red=False))
    assert offer.codec.red_type is None


def test_a_caller_who_insists_on_its_role_gets_the_other() -> None:
    assert "a=setup:passive" in answer_to(CHROMIUM.replace("a=setup:actpass", "a=setup:active"))
    assert "a=setup:active" in answer_to(CHROMIUM.replace("a=setup:actpass", "a=setup:passive"))


def test_an_offer_without_a_data_channel_is_answered() -> None:
    answer = answer_to(CHROMIUM.split("m=application")[0].replace("BUNDLE 0 1", "BUNDLE 0"))
    assert "m=application" not in answer


def test_the_old_form_of_the_data_section_is_answered_in_kind() -> None:
    offer = CHROMIUM.replace("UDP/DTLS/SCTP webrtc-datachannel", "DTLS/SCTP 5001").replace(
        "a=sctp-port:5000", "a=sctpmap:5001 webrtc-datachannel 256"
    )
    assert sdp.parse_offer(offer, LIMITS).sctp_port == 5001
    assert "m=application 4000 DTLS/SCTP 5000\r\n" in answer_to(offer)


VIDEO_ONLY = CHROMIUM.replace("m=audio", "m=video")
REFUSED = [
    ("", "invalid_offer", "v=0"),
    ("hello", "invalid_offer", "v=0"),
    ("v=0\r\nno line", "invalid_offer", "malformed"),
    ("v=0\r\nm=audio\r\n", "invalid_offer", "malformed"),
    ("v=0\r\nm=audio 9999999999 RTP/AVP x\x00y\r\n", "invalid_offer", "malformed"),
    (VIDEO_ONLY, "no_audio", "m=audio"),
    (CHROMIUM.replace("UDP/TLS/RTP/SAVPF", "RTP/AVP"), "no_audio", "SAVPF"),
    (CHROMIUM.replace("111 63 9 0 8 13 110 126", "9 13"), "no_common_codec", "opus"),
    (CHROMIUM.replace("a=rtcp-mux\r\n", ""), "invalid_offer", "rtcp-mux"),
    (CHROMIUM.replace("a=group:BUNDLE 0 1\r\n", ""), "invalid_offer", "BUNDLE"),
    (CHROMIUM.replace("a=ice-pwd:mF4tVGhWKfQ8m2z0sVbDLw8e\r\n", ""), "invalid_offer", "ICE"),
    (CHROMIUM.replace(FINGERPRINT, "zz"), "invalid_offer", "fingerprint"),
    (CHROMIUM.replace("sha-256", "md5"), "invalid_offer", "fingerprint"),
    (CHROMIUM.replace("sha-256", "sha-1"), "invalid_offer", "fingerprint"),
    (CHROMIUM.replace("s=-", "s=-\r\na=ice-lite"), "ice_lite", "full ICE"),
    (CHROMIUM.replace("m=audio 9 ", "m=audio 0 "), "no_audio", "m=audio"),
    (CHROMIUM.replace("m=audio 9 ", "m=audio \u00b2 "), "invalid_offer", "malformed"),
    (CHROMIUM.replace("sctp-port:5000", "sctp-port:\u00b2"), "invalid_offer", "sctp-port"),
    (CHROMIUM.replace("max-message-size:262144", "max-message-size:\u0662"), "invalid_offer", "max-message-size"),
    (CHROMIUM.replace("a=rtpmap:111 opus", "a=rtpmap:\u00b9 opus").replace("111 63 9 0 8", "111"), "no_common_codec", "opus"),
    (CHROMIUM.replace("a=setup:actpass", "a=setup:holdconn"), "invalid_offer", "setup"),
    (CHROMIUM.replace("a=mid:1", "a=mid:0"), "invalid_offer", "mid"),
    (CHROMIUM.replace("max-message-size:262144", "max-message-size:-1"), "invalid_offer", "max-message-size"),
    (CHROMIUM + 300 * "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n", "offer_too_large", "sections"),
    (CHROMIUM + 5000 * "a=x-padding:0123456789\r\n", "offer_too_large", "longer"),
    (CHROMIUM + "a=" + 5000 * "x" + "\r\n", "invalid_offer", "malformed"),
]


@pytest.mark.parametrize(("offer", "code", "says"), REFUSED, ids=range(len(REFUSED)))
def test_a_bad_offer_is_refused_with_a_sentence(offer: str, code: str, says: str) -> None:
    with pytest.raises(BadOffer, match=says) as refusal:
        sdp.parse_offer(offer, LIMITS)
    assert refusal.value.code == code


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_offer_is_refused_or_answered_but_never_breaks_anything(data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from((CHROMIUM, FIREFOX))).split("\r\n")
    for _ in range(data.draw(st.integers(1, 5))):
        index = data.draw(st.integers(0, len(lines) - 1))
        what = data.draw(st.sampled_from(("drop", "double", "cut", "garble", "move")))
        line = lines[index]
        if what == "drop":
            lines.pop(index)
        elif what == "double":
            lines.insert(index, line)
        elif what == "cut":
            lines[index] = line[: data.draw(st.integers(0, len(line)))]
        elif what == "garble":
            lines[index] = line[:2] + data.draw(st.text(max_size=40))
        else:
            lines.insert(data.draw(st.integers(0, len(lines) - 1)), lines.pop(index))
        lines = lines or [""]
    try:
        answer = answer_to("\r\n".join(lines))
    except BadOffer:
        return
    other.SessionDescription.parse(answer)
    assert all(line[1] == "=" for line in answer.split("\r\n") if line)
