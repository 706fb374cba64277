"""Clips as animated GIFs, which every chat and README shows. Needs the packages of the extra `media`."""

from __future__ import annotations

import io

SAMPLED = 8
"""So many frames (or a few more) decide which colours there are."""


def gif_of(mp4: bytes) -> bytes:
    """An endless GIF of a clip, at its size and rate. Raises ValueError for what is no clip."""
    import av
    from PIL import Image

    try:
        with av.open(io.BytesIO(mp4), "r") as file:
            rate = float(file.streams.video[0].average_rate or 8)
            frames = [Image.fromarray(frame.to_ndarray(format="rgb24")) for frame in file.decode(video=0)]
    except (av.error.FFmpegError, IndexError) as error:
        raise ValueError(f"this is no clip: {error}") from error
    if not frames:
        raise ValueError("this clip has no frames")
    # One palette for all frames, so that what stands still does not flicker.
    some = frames[:: max(1, len(frames) // SAMPLED)]
    sample = Image.new("RGB", (some[0].width, some[0].height * len(some)))
    for index, frame in enumerate(some):
        sample.paste(frame, (0, index * frame.height))
    palette = sample.quantize(255)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    out = io.BytesIO()
    small[0].save(out, "GIF", save_all=True, append_images=small[1:], duration=round(1000 / rate), loop=0)
    return out.getvalue()
