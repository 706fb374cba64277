"""Opus (RFC 6716) by libopus, called through cffi: encoder with DTX, in-band FEC and a choice of mode; decoder with PLC and FEC.

PCM is mono signed 16-bit little-endian `bytes`, at 24 kHz unless said otherwise. The library is the one that the `av` wheel
bundles, else the system's.
"""

from __future__ import annotations

import ctypes.util
import enum
import functools
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cffi

from .pcm import SAMPLE_RATE

FRAME_MS = 20
MAX_PACKET = 1276
"""Bytes: the largest single Opus frame with its TOC byte."""
MAX_FRAME_MS = 120
"""The longest packet that RFC 6716 allows."""

_DECLARATIONS = """
typedef struct OpusEncoder OpusEncoder;
typedef struct OpusDecoder OpusDecoder;
OpusEncoder *opus_encoder_create(int32_t Fs, int channels, int application, int *error);
void opus_encoder_destroy(OpusEncoder *st);
int opus_encoder_ctl(OpusEncoder *st, int request, ...);
int32_t opus_encode(OpusEncoder *st, const int16_t *pcm, int frame_size, unsigned char *data, int32_t max_data_bytes);
OpusDecoder *opus_decoder_create(int32_t Fs, int channels, int *error);
void opus_decoder_destroy(OpusDecoder *st);
int opus_decoder_ctl(OpusDecoder *st, int request, ...);
int opus_decode(OpusDecoder *st, const unsigned char *data, int32_t len, int16_t *pcm, int frame_size, int decode_fec);
int opus_packet_has_lbrr(const unsigned char packet[], int32_t len);
int opus_packet_get_nb_samples(const unsigned char packet[], int32_t len, int32_t Fs);
const char *opus_strerror(int error);
const char *opus_get_version_string(void);
"""

_APPLICATION_AUDIO = 2049
_SET_BITRATE = 4002
_SET_COMPLEXITY = 4010
_SET_INBAND_FEC = 4012
_SET_PACKET_LOSS_PERC = 4014
_SET_DTX = 4016
_SET_SIGNAL = 4024
_SIGNAL_VOICE = 3001
_RESET_STATE = 4028
_SET_FORCE_MODE = 11002
"""Of opus_private.h: every libopus since 1.1 has it. Where it is refused, the encoder chooses the mode by itself."""
_AUTO = -1000
_MODE_CELT_ONLY = 1002


class OpusError(ValueError):
    """libopus refused a packet or a setting; the message is its own."""


class Mode(enum.Enum):
    """How an encoder works. CELT costs a third of the CPU; the hybrid mode can carry a copy of the last frame (in-band FEC)."""

    CELT = _MODE_CELT_ONLY
    HYBRID = _AUTO


def _candidates() -> Iterator[str]:
    """Where libopus may be, the best first."""
    spec = importlib.util.find_spec("av")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        for folder, pattern in ((package.parent / "av.libs", "*opus*"), (package / ".dylibs", "libopus*"), (package, "*opus*.dll")):
            yield from (str(path) for path in sorted(folder.glob(pattern)))
    yield {"darwin": "libopus.0.dylib", "win32": "opus.dll"}.get(sys.platform, "libopus.so.0")
    found = ctypes.util.find_library("opus")
    if found:
        yield found


@functools.cache
def _library() -> tuple[Any, Any]:
    """(ffi, lib). Raises OpusError when there is no libopus at all."""
    ffi = cffi.FFI()
    ffi.cdef(_DECLARATIONS)
    for name in _candidates():
        try:
            return ffi, ffi.dlopen(name)
        except OSError:
            continue
    raise OpusError("There is no libopus. It comes with the package 'av' (pip install av), or from the system (apt-get install libopus0).")


def version() -> str:
    """The library's own name, such as "libopus 1.6.1"."""
    ffi, lib = _library()
    return str(ffi.string(lib.opus_get_version_string()).decode())


def _checked(code: int) -> int:
    if code < 0:
        ffi, lib = _library()
        raise OpusError(f"libopus: {ffi.string(lib.opus_strerror(code)).decode()}")
    return code


def has_fec(packet: bytes) -> bool:
    """Whether the packet carries a copy of the frame before it (LBRR)."""
    _, lib = _library()
    return bool(packet) and lib.opus_packet_has_lbrr(packet, len(packet)) == 1


def packet_samples(packet: bytes, sample_rate: int = SAMPLE_RATE) -> int:
    """How many samples the packet decodes to. Raises OpusError for what is no Opus packet."""
    _, lib = _library()
    return _checked(lib.opus_packet_get_nb_samples(packet, len(packet), sample_rate))


class OpusEncoder:
    """Encodes mono 20 ms frames. Starts in CELT mode without FEC; `protect` changes that while it runs."""

    def __init__(self, *, sample_rate: int = SAMPLE_RATE, bitrate: int = 48_000, complexity: int = 5, dtx: bool = True) -> None:
        self._ffi, self._lib = _library()
        error = self._ffi.new("int *")
        state = self._lib.opus_encoder_create(sample_rate, 1, _APPLICATION_AUDIO, error)
        _checked(error[0])
        self._state = self._ffi.gc(state, self._lib.opus_encoder_destroy)
        self.frame_samples = sample_rate * FRAME_MS // 1000
        self.mode = Mode.HYBRID
        self._out = self._ffi.new("unsigned char[]", MAX_PACKET)
        self._control(_SET_BITRATE, bitrate)
        self._control(_SET_COMPLEXITY, complexity)
        self._control(_SET_DTX, int(dtx))
        self.protect(0)

    def protect(self, loss_percent: int) -> None:
        """Prepare for so much packet loss: none means CELT; any means the hybrid mode with in-band FEC."""
        lossy = loss_percent > 0
        self.mode = Mode.HYBRID if lossy else Mode.CELT
        self._control(_SET_INBAND_FEC, int(lossy))
        self._control(_SET_PACKET_LOSS_PERC, min(100, max(0, loss_percent)))
        # Taken for voice the encoder uses its speech coder, which alone can carry the copy; left alone it would often not.
        self._control(_SET_SIGNAL, _SIGNAL_VOICE if lossy else _AUTO)
        # Refused by a library that lacks it: then the encoder itself chooses, at a higher cost.
        self._lib.opus_encoder_ctl(self._state, _SET_FORCE_MODE, self._ffi.cast("int32_t", self.mode.value))

    def encode(self, pcm: bytes) -> bytes:
        """One frame of `frame_samples` samples as a packet. One or two bytes: discontinuous transmission, nothing to say."""
        if len(pcm) != 2 * self.frame_samples:
            raise OpusError(f"an Opus frame here has {2 * self.frame_samples} bytes of PCM, not {len(pcm)}")
        samples = self._ffi.from_buffer("int16_t[]", pcm)
        size = _checked(self._lib.opus_encode(self._state, samples, self.frame_samples, self._out, MAX_PACKET))
        return bytes(self._ffi.buffer(self._out, size))

    def reset(self) -> None:
        """Forget the past: the next frame begins a new stream."""
        _checked(self._lib.opus_encoder_ctl(self._state, _RESET_STATE))

    def _control(self, request: int, value: int) -> None:
        _checked(self._lib.opus_encoder_ctl(self._state, request, self._ffi.cast("int32_t", value)))


class OpusDecoder:
    """Decodes packets of any Opus mode and duration to mono PCM at its own rate, straight from the codec, without resampling."""

    def __init__(self, *, sample_rate: int = SAMPLE_RATE) -> None:
        self._ffi, self._lib = _library()
        error = self._ffi.new("int *")
        state = self._lib.opus_decoder_create(sample_rate, 1, error)
        _checked(error[0])
        self._state = self._ffi.gc(state, self._lib.opus_decoder_destroy)
        self.sample_rate = sample_rate
        self._most = sample_rate * MAX_FRAME_MS // 1000
        self._step = sample_rate // 400
        self._out = self._ffi.new("int16_t[]", self._most)

    def decode(self, packet: bytes) -> bytes:
        """A packet's audio. Raises OpusError for a damaged packet (the decoder lives on)."""
        if not packet:
            raise OpusError("an Opus packet has at least one byte")
        return self._run(packet, len(packet), self._most, 0)

    def conceal(self, samples: int) -> bytes:
        """What may have been in a lost stretch (packet loss concealment); rounded down to a multiple of 2.5 ms."""
        return self._run(self._ffi.NULL, 0, self._whole(samples), 0)

    def recover(self, following: bytes, samples: int) -> bytes:
        """The lost `samples` before `following` from the copy in that packet (in-band FEC); concealed where it has none."""
        return self._run(following, len(following), self._whole(samples), 1)

    def _whole(self, samples: int) -> int:
        return min(self._most, max(self._step, samples // self._step * self._step))

    def _run(self, data: Any, size: int, samples: int, fec: int) -> bytes:
        count = _checked(self._lib.opus_decode(self._state, data, size, self._out, samples, fec))
        return bytes(self._ffi.buffer(self._out, 2 * count))


__all__ = [
    "FRAME_MS",
    "MAX_PACKET",
    "Mode",
    "OpusDecoder",
    "OpusEncoder",
    "OpusError",
    "has_fec",
    "packet_samples",
    "version",
]
