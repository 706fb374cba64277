"""Offers as real clients write them."""

from __future__ import annotations

FINGERPRINT = ":".join(["AB"] * 32)

CHROMIUM = f"""v=0
o=- 4611731400430051336 2 IN IP4 127.0.0.1
s=-
t=0 0
a=group:BUNDLE 0 1
a=extmap-allow-mixed
a=msid-semantic: WMS 0b
m=audio 9 UDP/TLS/RTP/SAVPF 111 63 9 0 8 13 110 126
c=IN IP4 0.0.0.0
a=rtcp:9 IN IP4 0.0.0.0
a=candidate:1 1 udp 2113937151 5a.local 50000 typ host generation 0 network-cost 999
a=candidate:2 1 udp 2113937151 198.51.100.7 50000 typ host generation 0 network-cost 999
a=ice-ufrag:Pl1Y
a=ice-pwd:mF4tVGhWKfQ8m2z0sVbDLw8e
a=ice-options:trickle
a=fingerprint:sha-256 {FINGERPRINT}
a=setup:actpass
a=mid:0
a=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level
a=sendrecv
a=msid:0b 6a
a=rtcp-mux
a=rtcp-rsize
a=rtpmap:111 opus/48000/2
a=rtcp-fb:111 transport-cc
a=fmtp:111 minptime=10;useinbandfec=1
a=rtpmap:63 red/48000/2
a=fmtp:63 111/111
a=rtpmap:9 G722/8000
a=rtpmap:0 PCMU/8000
a=rtpmap:8 PCMA/8000
a=rtpmap:13 CN/8000
a=rtpmap:110 telephone-event/48000
a=rtpmap:126 telephone-event/8000
a=ssrc:1 cname:x
m=application 9 UDP/DTLS/SCTP webrtc-datachannel
c=IN IP4 0.0.0.0
a=ice-ufrag:Pl1Y
a=ice-pwd:mF4tVGhWKfQ8m2z0sVbDLw8e
a=ice-options:trickle
a=fingerprint:sha-256 {FINGERPRINT}
a=setup:actpass
a=mid:1
a=sctp-port:5000
a=max-message-size:262144
""".replace("\n", "\r\n")

FIREFOX = f"""v=0
o=mozilla...THIS_IS_SDPARTA-99.0 1 0 IN IP4 0.0.0.0
s=-
t=0 0
a=fingerprint:sha-256 {FINGERPRINT}
a=group:BUNDLE 0 1
a=ice-options:trickle
a=msid-semantic:WMS *
m=audio 9 UDP/TLS/RTP/SAVPF 109 9 0 8 101
c=IN IP4 0.0.0.0
a=sendrecv
a=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level
a=fmtp:109 maxplaybackrate=48000;stereo=1;useinbandfec=1
a=ice-pwd:ec81246fe3f5bd4d5ad8cf3f9fb3a4b2
a=ice-ufrag:9f2c6a8f
a=mid:0
a=msid:- x
a=rtcp-mux
a=rtpmap:109 opus/48000/2
a=rtpmap:9 G722/8000/1
a=rtpmap:0 PCMU/8000
a=rtpmap:8 PCMA/8000
a=setup:actpass
m=application 9 UDP/DTLS/SCTP webrtc-datachannel
c=IN IP4 0.0.0.0
a=sendrecv
a=ice-pwd:ec81246fe3f5bd4d5ad8cf3f9fb3a4b2
a=ice-ufrag:9f2c6a8f
a=mid:1
a=setup:actpass
a=sctp-port:5000
a=max-message-size:1073741823
""".replace("\n", "\r\n")
