"""What can go wrong between a robot and its policy, as sentences for the robot's owner."""

from __future__ import annotations


class RobotError(Exception):
    """The control loop cannot go on, or a part of it could not; the message says why."""


class PolicyUnreachable(RobotError):
    """There is no connection, or it was lost, or no reply came in time: worth another try."""


class NoReply(PolicyUnreachable):
    """A reply did not come in time; the connection was given up with it."""


class Refused(RobotError):
    """The server does not want this robot (key, policy, session): trying again would change nothing."""


class PolicyChanged(RobotError):
    """After a reconnection the server runs a policy with other actions than before."""


class BadLog(RobotError):
    """A file that is no episode log."""
