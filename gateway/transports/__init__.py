"""How bytes reach and leave a session: one file a transport, each a thin shell around a socket, all behind `connection.Connection`."""
