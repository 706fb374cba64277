"""The ears and the mouth: voice detection, turn end, recognition and speech, on small models that run on a CPU core each.

Engines take explicit file paths in their options (`engines.weights.locate` finds them) and compute on threads of their own,
never on the event loop. `open()` loads and warms up.
"""

from .silero import SileroOptions, SileroVad
from .smart_turn import SmartTurn, SmartTurnOptions
from .whisper import Whisper, WhisperOptions

__all__ = ["SileroOptions", "SileroVad", "SmartTurn", "SmartTurnOptions", "Whisper", "WhisperOptions"]
