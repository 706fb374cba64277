"""Whole stories run against a live server through its public interface: the demo, the acceptance test and the benchmark.

demo, voice_turns, load_voice   the scenarios (the demo's acts: demo_call, demo_media)
job_storm                       calls while pictures and clips are made
impairment, load_webrtc         those of calls over WebRTC
cli                             `antiphon scenario`
conversation                    plays a scripted call: say, wait, interrupt, hum, cough
callers, sounds                 the callers' voices, and noises
figures, words                  what is measured, each figure defined once
impaired_link                   a bad network between a caller and a server
storm                           so many jobs at once
media_server, animation         a server that draws, and clips as GIFs
stock_server                    a server made with aiortc alone, to compare with
server, processes               starts a server as a user does, and watches its process
timeline, report                pictures and tables
"""
