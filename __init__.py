"""Antiphon: a realtime full-duplex gateway for voice and robots."""

__version__ = "0.1.0"
