"""Robots: what they send and are sent, and the session that keeps their action chunks fresh.

    errors        what may be wrong with a request, in one tree
    wire          openpi's messages: requests read, replies and metadata written
    observation   observations checked against what the policy takes, before it sees them
    actions       actions checked on the way out
    session       the robot session: epochs, the latest observation, deadlines, episodes; without I/O

Nothing here opens a socket or starts a task; `gateway/robots` does.
"""
