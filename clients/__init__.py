"""What a user imports or runs to talk to a server: it knows the public protocol and nothing of the server's inside.

interface       what every voice client can do, whatever its transport
realtime        the WebSocket client
webrtc          the WebRTC client
media_caller    a WebRTC caller for measurements
audio_sender    sends audio as a microphone does: frames on absolute deadlines
player          plays what arrives in real time and knows what was heard
microphone      the same two on a sound card (extra `mic`)
call            binds a client, a sender and a player: a whole call, interruptions included
transcript      who said what, and what of it was heard
printer         shows it in a terminal
media           pictures and clips
robot           a robot's control loop, against any server that speaks openpi's protocol
call_recording  both sides of a call in one WAV file
cli             `antiphon talk`
"""

from .call import Call
from .errors import CallFailed, CouldNotConnect, NoAnswer
from .interface import ServerEvent, VoiceClient
from .player import SimulatedPlayer
from .realtime import RealtimeClient, connect

__all__ = [
    "Call",
    "CallFailed",
    "CouldNotConnect",
    "NoAnswer",
    "RealtimeClient",
    "ServerEvent",
    "SimulatedPlayer",
    "VoiceClient",
    "connect",
]
