"""What a session is, without I/O: events and a clock go in, wire events and commands come out.

`session.Session` is the façade; `turn_taking` decides who speaks, `responses` makes answers, `playback` knows what was heard,
`conversation` remembers it, `registry` decides who may stay. No socket, task or engine is known here.
"""
