"""The edge of the house: HTTP and WebSocket routes, transports, and the conductor that binds a session to the engines.

`app.create_app(settings)` makes the ASGI application, `server.serve(settings)` runs it, `cli` is the command line. Everything
that decides lives in `sessions/`, everything that computes in `engines/`; here are sockets, tasks, timers and limits.
"""
