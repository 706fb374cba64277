"""The WebRTC transport: a call's audio on a media track, its events on the data channel `oai-events`.

aiortc makes the connection (ICE, DTLS, SCTP); the media path is ours, because its own hears little at packet loss and costs
several times the CPU.

limits          the settings `[webrtc]`
sdp             offers are read and checked, answers written
udp_mux         every call on one UDP port
aiortc_hooks    all private places of aiortc and aioice that we touch, and a check of them
peer            one connection: ICE, DTLS, SCTP, SRTP, reports, life and end
rtp, rtcp       the packets
track_codecs    Opus and G.711 behind one interface
media_receive   the caller's audio: reordering, FEC, RED, concealment, the audio clock
media_send      the server's audio: queue, purge, fade, silence, protection
ticker          one 20 ms clock for all calls
data_channel    session events as JSON
liveness        is the caller still there?
connection      binds a peer to a session (`transports.connection.Connection`)
"""
