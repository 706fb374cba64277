"""Whole stories run against a live server through its public interface: the demo, the acceptance test and the benchmark.

demo, voice_turns, load_voice   the scenarios
cli                             `antiphon scenario`
conversation                    plays a scripted call: say, wait, interrupt, hum, cough
callers, sounds                 the callers' voices, and noises
figures, words                  what is measured, each figure defined once
server, processes               starts a server as a user does, and watches its process
timeline, report                pictures and tables
"""
