"""The control loop that a robot's owner would write, over openpi's wire protocol: it works against any server that speaks it.

client        `RobotClient`: a fixed rate, a robot, a policy's server
controller    what is executed at each step, and when a chunk is asked for; without I/O
plan          chunks, checked, and what ties them to the observation that they were made from
handover      from one chunk to the next: wait, switch, rtc, ensemble
watchdog      no action: hold, then stop
policy        what the server's metadata says
replies       a reply, read
link          one connection kept open, one request on it at a time
connection    openpi's frames on a WebSocket
episode_log   everything that decided what was executed, and its replay
statistics    jitter, stalls, round trips, jumps at the borders of chunks
"""

from .client import Outcome, Robot, RobotClient
from .clock import Clock, MonotonicClock
from .controller import Controller
from .episode_log import EpisodeLog, Replay, read_log, replay
from .errors import BadLog, PolicyChanged, PolicyUnreachable, Refused, RobotError
from .policy import PolicyInfo
from .settings import ControlSettings
from .statistics import Spread, Statistics
from .watchdog import Mode, Watchdog

__all__ = [
    "BadLog",
    "Clock",
    "ControlSettings",
    "Controller",
    "EpisodeLog",
    "Mode",
    "MonotonicClock",
    "Outcome",
    "PolicyChanged",
    "PolicyInfo",
    "PolicyUnreachable",
    "Refused",
    "Replay",
    "Robot",
    "RobotClient",
    "RobotError",
    "Spread",
    "Statistics",
    "Watchdog",
    "read_log",
    "replay",
]
