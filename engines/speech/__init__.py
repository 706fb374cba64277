"""The ears and the mouth: voice detection, turn end, recognition and speech, on small models that run on a CPU core each.

Engines take explicit file paths in their options (`engines.weights.locate` finds them) and compute on threads of their own,
never on the event loop. `open()` loads and warms up. `text.speakable` turns written text into what is said.
"""

from .hibari import HibariOptions, HibariSpeech
from .kokoro import KokoroOptions, KokoroSpeech
from .silero import SileroOptions, SileroVad
from .smart_turn import SmartTurn, SmartTurnOptions
from .text import Piece, Speakable, speakable
from .whisper import Whisper, WhisperOptions

__all__ = [
    "HibariOptions",
    "HibariSpeech",
    "KokoroOptions",
    "KokoroSpeech",
    "Piece",
    "SileroOptions",
    "SileroVad",
    "SmartTurn",
    "SmartTurnOptions",
    "Speakable",
    "Whisper",
    "WhisperOptions",
    "speakable",
]
