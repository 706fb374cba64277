"""Session descriptions (RFC 8866, RFC 8829): an offer is read for what we need and checked; the answer is written by us.

The candidates of an offer are never read: callers are found where their authenticated packets come from, so that an offer
cannot make the server send anything to an address that somebody wrote down.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .errors import BadOffer
from .limits import WebRtcLimits
from .udp_mux import LocalCandidate

MAX_LINE = 4096
DEFAULT_MESSAGE_SIZE = 65_536
"""What a peer takes that does not say (RFC 8841)."""
LOCAL_MESSAGE_SIZE = 262_144
SCTP_PORT = 5000
HASHES = ("sha-256", "sha-384", "sha-512")
DIRECTIONS = {"sendrecv": "sendrecv", "sendonly": "recvonly", "recvonly": "sendonly", "inactive": "inactive"}
"""What the offer says -> what we answer."""
OPUS_PARAMETERS = "minptime=10;useinbandfec=1;stereo=0;sprop-stereo=0;maxplaybackrate=24000"
"""We hear mono at 24 kHz and want the caller's encoder to send in-band FEC when packets are lost; it must ask for no DTX."""
_ICE = re.compile(r"[A-Za-z0-9+/=_-]{4,256}")
_TOKEN = re.compile(r"[!#$%&'*+.^_`{|}~A-Za-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Of the caller's certificate."""

    algorithm: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """The audio codec that was chosen: "opus", "PCMU" or "PCMA", and the payload type of redundant audio, if agreed."""

    name: str
    payload_type: int
    red_type: int | None = None


@dataclass(slots=True)
class Section:
    """A media section of an offer, as its lines."""

    kind: str
    port: int
    protocol: str
    formats: list[str]
    attributes: list[tuple[str, str]] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        """The first attribute of that name."""
        return next((value for key, value in self.attributes if key == name), None)

    def has(self, name: str) -> bool:
        return any(key == name for key, _ in self.attributes)

    @property
    def mid(self) -> str:
        return self.get("mid") or ""

    @property
    def direction(self) -> str:
        return next((key for key, _ in self.attributes if key in DIRECTIONS), "sendrecv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a caller offers, checked."""

    sections: tuple[Section, ...]
    audio: Section
    data: Section | None
    codec: Codec
    ufrag: str
    password: str
    fingerprints: tuple[Fingerprint, ...]
    dtls_role: str
    """Ours: "client" or "server"."""
    sctp_port: int
    max_message_size: int
    """Bytes of the largest event that the caller takes; 0: any."""

    @property
    def sends(self) -> bool:
        """Whether the caller will send audio."""
        return self.audio.direction in ("sendrecv", "sendonly")

    @property
    def receives(self) -> bool:
        """Whether the caller wants to hear audio."""
        return self.audio.direction in ("sendrecv", "recvonly")


# ---- reading --------------------------------------------------------------------------------------------------------


def parse_offer(text: str, limits: WebRtcLimits) -> Offer:
    """Read an offer. Raises BadOffer with a sentence for the caller."""
    session, sections = _split(text, limits)
    if session.has("ice-lite"):
        raise BadOffer("An ICE-lite caller waits to be called upon, and so does the server: offer full ICE.", "ice_lite")
    live = [section for section in sections if section.port != 0 or section.has("bundle-only")]
    audio = next((s for s in live if s.kind == "audio" and s.protocol.startswith("UDP/TLS/RTP/SAVP")), None)
    if audio is None:
        raise BadOffer("The offer has no audio section (m=audio … UDP/TLS/RTP/SAVPF): a voice call needs one.", "no_audio")
    data = next((s for s in live if s.kind == "application" and "SCTP" in s.protocol), None)
    codec = _choose_codec(audio, limits)
    if not audio.has("rtcp-mux"):
        raise BadOffer("The audio section lacks a=rtcp-mux: RTP and RTCP must share one port.")
    used = [audio] if data is None else [audio, data]
    if len(used) > 1 and not _bundled(session, used):
        raise BadOffer("The audio and the data channel must be in one a=group:BUNDLE: use the bundle policy 'max-bundle' or 'balanced'.")
    leader = min(used, key=sections.index)

    def transport(name: str) -> str | None:
        """An attribute of the one transport: of its first section, else of the session, else of the other section."""
        return leader.get(name) or session.get(name) or next((value for s in used if (value := s.get(name))), None)

    ufrag, password = transport("ice-ufrag"), transport("ice-pwd")
    if not ufrag or not password or not _ICE.fullmatch(ufrag) or not _ICE.fullmatch(password):
        raise BadOffer("The offer lacks usable ICE credentials (a=ice-ufrag and a=ice-pwd).")
    return Offer(
        sections=tuple(sections),
        audio=audio,
        data=data,
        codec=codec,
        ufrag=ufrag,
        password=password,
        fingerprints=_fingerprints([leader, session, *used]),
        dtls_role=_our_role(transport("setup")),
        sctp_port=_number(data, "sctp-port", _legacy_port(data), 65_535),
        max_message_size=_number(data, "max-message-size", DEFAULT_MESSAGE_SIZE, 1 << 62),
    )


def _split(text: str, limits: WebRtcLimits) -> tuple[Section, list[Section]]:
    """The session-level attributes (as a section without media) and the media sections."""
    if len(text) > limits.offer_bytes:
        raise BadOffer(f"The offer is longer than {limits.offer_bytes} bytes.", "offer_too_large")
    lines = [line for line in re.split(r"\r\n|\n|\r", text) if line]
    if not lines or lines[0] != "v=0":
        raise BadOffer("The body is no session description: an offer begins with the line v=0.")
    session = current = Section("", 0, "", [])
    sections: list[Section] = []
    for line in lines[1:]:
        if len(line) > MAX_LINE or len(line) < 2 or line[1] != "=" or not line.isprintable():
            raise BadOffer(f"This line of the offer is malformed: {line[:60]!r}.")
        if line[0] == "m":
            parts = line[2:].split()
            if len(parts) < 4 or not _is_number(parts[1].split("/")[0]) or not all(map(_TOKEN.fullmatch, (parts[0], *parts[3:]))):
                raise BadOffer(f"This media line of the offer is malformed: {line[:60]!r}.")
            current = Section(parts[0], int(parts[1].split("/")[0]), parts[2], parts[3:])
            sections.append(current)
            if len(sections) > limits.offer_sections:
                raise BadOffer(f"The offer has more than {limits.offer_sections} media sections; a call needs two.", "offer_too_large")
        elif line[0] == "a":
            name, _, value = line[2:].partition(":")
            current.attributes.append((name, value.strip()))
    mids = [section.mid for section in sections if section.mid]
    if len(set(mids)) != len(mids) or not all(map(_TOKEN.fullmatch, mids)):
        raise BadOffer("The a=mid lines of the offer must be short and all different.")
    return session, sections


def _is_number(text: str) -> bool:
    """Digits that `int` takes: `isdigit` alone also holds for those of other scripts, and for a superscript two."""
    return text.isascii() and text.isdigit()


def _choose_codec(audio: Section, limits: WebRtcLimits) -> Codec:
    """Opus where there is Opus, else G.711."""
    names: dict[int, str] = {0: "PCMU/8000", 8: "PCMA/8000"}
    for name, value in audio.attributes:
        number, _, mapping = value.partition(" ")
        if name == "rtpmap" and _is_number(number) and int(number) < 128:
            names[int(number)] = mapping.strip()
    offered = [int(form) for form in audio.formats if form.isdigit() and int(form) < 128]
    by_name = {names[number].lower(): number for number in reversed(offered) if number in names}
    opus = by_name.get("opus/48000/2")
    if opus is not None:
        red = by_name.get("red/48000/2") if limits.red else None
        return Codec(name="opus", payload_type=opus, red_type=red)
    for name in ("PCMU", "PCMA"):
        plain = by_name.get(f"{name}/8000".lower(), by_name.get(f"{name}/8000/1".lower()))
        if plain is not None:
            return Codec(name=name, payload_type=plain)
    raise BadOffer("The offer has no audio codec that the server speaks: opus/48000/2, PCMU/8000 or PCMA/8000.", "no_common_codec")


def _bundled(session: Section, used: Sequence[Section]) -> bool:
    groups = [value.split()[1:] for name, value in session.attributes if name == "group" and value.split()[:1] == ["BUNDLE"]]
    return any(all(section.mid in group for section in used) for group in groups)


def _fingerprints(places: Sequence[Section]) -> tuple[Fingerprint, ...]:
    for place in places:
        found = []
        for name, value in place.attributes:
            algorithm, _, digest = value.partition(" ")
            if name == "fingerprint" and algorithm.lower() in HASHES and re.fullmatch(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2})+", digest.strip()):
                found.append(Fingerprint(algorithm.lower(), digest.strip().upper()))
        if found:
            return tuple(found)
    raise BadOffer(f"The offer lacks a usable a=fingerprint; the server knows {', '.join(HASHES)}.")


def _our_role(setup: str | None) -> str:
    match setup:
        case "actpass" | "passive" | None:
            return "client"
        case "active":
            return "server"
    raise BadOffer(f"a=setup:{setup[:20]} is none of actpass, active and passive.")


def _legacy_port(data: Section | None) -> int:
    """Before `a=sctp-port` the port stood in the media line."""
    form = data.formats[0] if data is not None else ""
    return int(form) if form.isdigit() and 0 < int(form) < 65_536 else SCTP_PORT


def _number(section: Section | None, name: str, default: int, most: int) -> int:
    value = section.get(name) if section is not None else None
    if value is None:
        return default
    if not _is_number(value) or len(value) > 19 or int(value) > most:
        raise BadOffer(f"a={name}:{value[:20]} is out of range.")
    return int(value)


# ---- writing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """Our side of a call."""

    session_id: int
    ufrag: str
    password: str
    fingerprints: tuple[Fingerprint, ...]
    candidates: tuple[LocalCandidate, ...]
    ssrc: int
    cname: str


def write_answer(offer: Offer, local: Local) -> str:
    """The answer: the audio and the data channel accepted, everything else refused, in the order of the offer."""
    accepted = [section for section in offer.sections if section is offer.audio or section is offer.data]
    lines = [
        "v=0",
        f"o=- {local.session_id} 1 IN IP4 127.0.0.1",
        "s=-",
        "t=0 0",
        *([f"a=group:BUNDLE {' '.join(s.mid for s in accepted)}"] if all(s.mid for s in accepted) else []),
        "a=msid-semantic:WMS *",
    ]
    for section in offer.sections:
        if section is offer.audio:
            lines += _audio_lines(offer, local)
        elif section is offer.data:
            lines += _data_lines(offer, section, local)
        else:
            lines += [f"m={section.kind} 0 {section.protocol} {section.formats[0]}", "c=IN IP4 0.0.0.0"]
            lines += [f"a=mid:{section.mid}"] if section.mid else []
            lines += ["a=inactive"]
    return "\r\n".join(lines) + "\r\n"


def _transport_lines(offer: Offer, section: Section, local: Local) -> list[str]:
    lines = [f"a=mid:{section.mid}"] if section.mid else []
    lines += [f"a=ice-ufrag:{local.ufrag}", f"a=ice-pwd:{local.password}", "a=ice-options:trickle"]
    lines += [f"a=fingerprint:{print_.algorithm} {print_.value}" for print_ in local.fingerprints]
    lines += [f"a=setup:{'active' if offer.dtls_role == 'client' else 'passive'}"]
    # In every section: browsers read those of the first bundled one, aiortc those of the last.
    for index, candidate in enumerate(local.candidates):
        # A candidate's priority (RFC 8445): type preference 126 for host candidates, then the order in which we name them.
        priority = (126 << 24) | ((65_535 - index) << 8) | 255
        lines.append(f"a=candidate:{index + 1} 1 udp {priority} {candidate.host} {candidate.port} typ host")
    return [*lines, "a=end-of-candidates"]


def _media_line(kind: str, protocol: str, formats: str, local: Local) -> list[str]:
    candidate = local.candidates[0]
    return [f"m={kind} {candidate.port} {protocol} {formats}", f"c=IN IP4 {candidate.host}"]


def _audio_lines(offer: Offer, local: Local) -> list[str]:
    codec, section = offer.codec, offer.audio
    formats = f"{codec.red_type} {codec.payload_type}" if codec.red_type is not None else str(codec.payload_type)
    lines = _media_line("audio", section.protocol, formats, local)
    lines += ["a=rtcp:9 IN IP4 0.0.0.0", *_transport_lines(offer, section, local)]
    lines += [f"a={DIRECTIONS[section.direction]}", "a=rtcp-mux"]
    if codec.red_type is not None:
        lines += [f"a=rtpmap:{codec.red_type} red/48000/2", f"a=fmtp:{codec.red_type} {codec.payload_type}/{codec.payload_type}"]
    if codec.name == "opus":
        lines += [f"a=rtpmap:{codec.payload_type} opus/48000/2", f"a=fmtp:{codec.payload_type} {OPUS_PARAMETERS}"]
    else:
        lines += [f"a=rtpmap:{codec.payload_type} {codec.name}/8000"]
    lines += ["a=ptime:20"]
    if offer.receives:
        lines += ["a=msid:antiphon assistant", f"a=ssrc:{local.ssrc} cname:{local.cname}"]
    return lines


def _data_lines(offer: Offer, section: Section, local: Local) -> list[str]:
    legacy = section.formats[0].isdigit()
    form = str(SCTP_PORT) if legacy else "webrtc-datachannel"
    lines = [*_media_line("application", section.protocol, form, local), *_transport_lines(offer, section, local)]
    lines += [f"a=sctpmap:{SCTP_PORT} webrtc-datachannel 65535"] if legacy else [f"a=sctp-port:{SCTP_PORT}"]
    return [*lines, f"a=max-message-size:{LOCAL_MESSAGE_SIZE}"]
