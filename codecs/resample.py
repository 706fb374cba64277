"""Sample rate conversion by a polyphase windowed-sinc filter, in numpy.

For rates in the ratio L/M, every group of M input samples gives L output samples, each a weighted sum of the input around
it: one matrix product per block, whatever its length. The filter is symmetric, so the output is aligned with the input;
what it costs is look-ahead: `Resampler.latency` input samples (see there).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .pcm import Buffer, FloatArray, from_float, to_float

ZERO_CROSSINGS = 16
"""Half the filter's length, in periods of the lower of the two rates."""

KAISER_BETA = 8.0
ROLLOFF = 0.945
"""The filter's -6 dB point as a fraction of the lower Nyquist frequency; aliases lie about 80 dB down."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The filter of one pair of rates: `matrix [2 * half + down, up]` turns a window of input into `up` outputs."""

    up: int
    down: int
    half: int
    matrix: FloatArray

    def apply(self, windowed: FloatArray) -> FloatArray:
        """`[..., n]` input whose first `half` samples are history -> `[..., groups * up]`.

        `groups = (n - 2 * half) // down`; the rest of the input is the look-ahead of the next block.
        """
        width = 2 * self.half + self.down
        windows = np.lib.stride_tricks.sliding_window_view(windowed, width, axis=-1)[..., :: self.down, :]
        shape = (*windowed.shape[:-1], windows.shape[-2] * self.up)
        output: FloatArray = np.ascontiguousarray(windows).dot(self.matrix).reshape(shape)
        return output


@functools.lru_cache(maxsize=32)
def kernel(source_rate: int, target_rate: int, groups: int = 1) -> Kernel:
    """The filter from one rate to another, computing `groups` groups per row of the product.

    More groups make fewer, larger products (faster for small ratios) and a coarser grain. Raises ValueError unless the rates
    are positive.
    """
    if source_rate <= 0 or target_rate <= 0:
        raise ValueError(f"sample rates must be positive, not {source_rate} and {target_rate}")
    common = math.gcd(source_rate, target_rate)
    up, down = target_rate // common * groups, source_rate // common * groups
    scale = min(1.0, target_rate / source_rate)
    half = math.ceil(ZERO_CROSSINGS / scale)
    taps = np.arange(2 * half + down, dtype=np.float64)[:, None] - half
    distance = taps - np.arange(up, dtype=np.float64)[None, :] * (down / up)
    window = np.i0(KAISER_BETA * np.sqrt(np.clip(1 - (distance / half) ** 2, 0, None))) * (np.abs(distance) <= half)
    cutoff = scale * ROLLOFF
    matrix = np.sinc(cutoff * distance) * window
    matrix /= matrix.sum(axis=0, keepdims=True)  # unity gain at zero frequency in each phase
    return Kernel(up, down, half, matrix.astype(np.float32))


class Resampler:
    """Converts a stream block by block, keeping the filter's state: `process` any number of times, then `flush`.

    The blocks joined equal the one-shot conversion of the whole, for any cutting into blocks. `latency` input samples are
    held back as look-ahead (16 periods of the lower rate: 1 ms between 24 and 16 kHz, 2 ms between 24 and 8 kHz), plus at
    most one group of `down` samples; the first block is therefore that much shorter and `flush` gives the rest.
    """

    def __init__(self, source_rate: int, target_rate: int) -> None:
        self.source_rate = source_rate
        self.target_rate = target_rate
        self._kernel = kernel(source_rate, target_rate)
        self.latency = 0 if source_rate == target_rate else self._kernel.half
        self.reset()

    def reset(self) -> None:
        """Forget the past: the next block begins a new stream."""
        self._buffer: FloatArray = np.zeros(self._kernel.half, np.float32)
        self._taken = 0
        self._given = 0

    def process(self, samples: npt.ArrayLike) -> FloatArray:
        """Take `[n] float32`, give what can be computed so far."""
        block = np.asarray(samples, dtype=np.float32)
        if self.source_rate == self.target_rate:
            return block
        self._taken += len(block)
        self._buffer = np.concatenate((self._buffer, block))
        groups = (len(self._buffer) - 2 * self._kernel.half) // self._kernel.down
        if groups <= 0:
            return np.zeros(0, np.float32)
        used = groups * self._kernel.down
        output = self._kernel.apply(self._buffer[: used + 2 * self._kernel.half])
        self._buffer = self._buffer[used:]
        self._given += len(output)
        return output

    def flush(self) -> FloatArray:
        """The rest of the stream (the input is taken to be silent after its end); then start anew."""
        if self.source_rate == self.target_rate:
            return np.zeros(0, np.float32)
        total = -(-self._taken * self._kernel.up // self._kernel.down)
        missing = total - self._given
        output = self.process(np.zeros(self._kernel.half + 2 * self._kernel.down, np.float32))[:missing]
        self.reset()
        return output

    def process_pcm(self, pcm: Buffer) -> bytes:
        """`process` for 16-bit PCM bytes."""
        return from_float(self.process(to_float(pcm)))

    def flush_pcm(self) -> bytes:
        """`flush` as 16-bit PCM bytes."""
        return from_float(self.flush())


class RowResampler:
    """Converts blocks of one fixed length for many streams at once: `[rows, block] -> [rows, block * up / down]`.

    The caller keeps each stream's `history` row (`[history_length] float32`, zeros at first), so that streams may come and
    go between steps. The output lags the input by `delay` input samples, the filter's look-ahead.
    """

    def __init__(self, source_rate: int, target_rate: int, block: int) -> None:
        down = kernel(source_rate, target_rate).down
        if block % down:
            raise ValueError(f"a block of {block} samples is no multiple of {down}, as {source_rate} -> {target_rate} Hz needs")
        groups = max(count for count in range(1, 17) if block // down % count == 0)
        self._kernel = kernel(source_rate, target_rate, groups)
        self.block = block
        self.output_block = block * self._kernel.up // self._kernel.down
        self.history_length = 2 * self._kernel.half
        self.delay = self._kernel.half

    def process(self, blocks: FloatArray, history: FloatArray) -> tuple[FloatArray, FloatArray]:
        """`blocks [rows, block]`, `history [rows, history_length]` -> outputs `[rows, output_block]`, the new history."""
        joined = np.concatenate((history, blocks), axis=1)
        return self._kernel.apply(joined), joined[:, -self.history_length :]


def resample(audio: Buffer | npt.NDArray[np.float32], source_rate: int, target_rate: int) -> FloatArray:
    """Convert a whole recording, PCM bytes or `[n] float32`, to `[ceil(n * target / source)] float32`, aligned in time."""
    samples = to_float(audio) if isinstance(audio, bytes | bytearray | memoryview) else np.asarray(audio, np.float32)
    if source_rate == target_rate:
        return samples
    converter = Resampler(source_rate, target_rate)
    return np.concatenate((converter.process(samples), converter.flush()))


def resample_pcm(pcm: Buffer, source_rate: int, target_rate: int) -> bytes:
    """`resample` from PCM bytes to PCM bytes."""
    return bytes(pcm) if source_rate == target_rate else from_float(resample(pcm, source_rate, target_rate))
