"""Bytes to arrays and back: PCM, G.711, resampling, WAV, MessagePack with numpy arrays, pictures, clips.

Everything here is a pure function or a small object with explicit state; nothing knows of sessions, engines or sockets.
Inside the house audio is mono signed 16-bit little-endian PCM at 24 kHz (`SAMPLE_RATE`); these modules convert at the edge.

    pcm        int16 <-> float32, silence, mixing, levels, durations
    g711       mu-law and A-law (ITU-T G.711)
    resample   streaming polyphase resampler, and its one-shot form
    wav        WAV files in any PCM encoding; write mono and stereo
    msgpack_numpy   MessagePack with numpy arrays, byte for byte as openpi's clients write it
    images     PNG, JPEG, WebP and GIF; resizing, thumbnails (needs Pillow)
    sheets     sprite sheets of clips, contact sheets (needs Pillow)
    video      MP4 with H.264, frame by frame (needs PyAV)
"""

from . import g711, msgpack_numpy, pcm, resample, wav
from .pcm import SAMPLE_RATE

__all__ = ["SAMPLE_RATE", "g711", "msgpack_numpy", "pcm", "resample", "wav"]
