"""Robots at the edge: connections, the conductor that binds a robot session to its policy, and which robots there are.

replies      an answer of the session as the bytes that leave
connection   the WebSocket transport: binary frames, an outbox whose entries are asked once more before they leave
conductor    a robot session with its engine, its timer and its connection
robots       sessions by id: admission, leases, evictions that are remembered
serving      one connection, from its handshake to its end
"""
