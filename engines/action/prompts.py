"""Instructions as vectors of hashed words. Deterministic, without a vocabulary."""

from __future__ import annotations

import hashlib
import itertools
import re
import zlib
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

_WORD = re.compile(r"[a-z0-9]+")
MAX_WORDS = 64
"""Words of an instruction that count; what follows is left out."""


WORD_HASHES = 4
"""Buckets that a word falls into in the encoding "words"."""

Encoding = Literal["bag", "words"]


def embed_prompt(text: str, buckets: int = 256, encoding: Encoding = "bag") -> npt.NDArray[np.float32]:
    """`[buckets]` float32; zeros for a text without words.

    "bag": how often a word or pair of neighbours falls (by CRC-32) into each bucket, scaled to length 1. "words": each word that occurs
    adds or takes one half in `WORD_HASHES` buckets, so that a word looks the same in every sentence and two words are hardly ever
    alike; their order is lost.
    """
    words = _WORD.findall(text.lower())[:MAX_WORDS]
    vector = np.zeros(buckets, np.float32)
    if encoding == "words":
        for word in set(words):
            for bucket, sign in _places(word, buckets):
                vector[bucket] += sign
        return vector
    for gram in words + [f"{first}_{second}" for first, second in itertools.pairwise(words)]:
        vector[zlib.crc32(gram.encode()) % buckets] += 1
    return vector / max(1e-6, float(np.linalg.norm(vector)))


@lru_cache(maxsize=4096)
def _places(word: str, buckets: int) -> tuple[tuple[int, float], ...]:
    """(bucket, +-0.5) of a word's hashes."""
    digest = hashlib.blake2b(word.encode(), digest_size=4 * WORD_HASHES).digest()  # CRCs of a word and its like collide all at once
    hashes = [int.from_bytes(digest[at : at + 4], "little") for at in range(0, len(digest), 4)]
    return tuple((value % buckets, 0.5 if value >> 31 else -0.5) for value in hashes)
