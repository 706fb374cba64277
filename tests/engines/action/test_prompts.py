"""Instructions as vectors."""

from __future__ import annotations

import numpy as np
import pytest
from antiphon.engines.action.prompts import WORD_HASHES, embed_prompt
from hypothesis import given
from hypothesis import strategies as st

HEARD = ["put", "the", "red", "green", "blue", "cube", "on", "white", "yellow", "pad", "lift", "please", "robot", "now"]
WORDS = st.lists(st.sampled_from(HEARD), min_size=1, max_size=12)


@given(WORDS, WORDS)
def test_words_a_word_looks_the_same_in_every_sentence(first: list[str], second: list[str]) -> None:
    """What a sentence of other words adds is added, whatever stands before it."""
    second = [word for word in second if word not in first]
    both = embed_prompt(" ".join(first + second), 512, "words")
    assert np.allclose(both, embed_prompt(" ".join(first), 512, "words") + embed_prompt(" ".join(second), 512, "words"))


@given(WORDS)
def test_words_neither_order_nor_repetition_nor_case_counts(words: list[str]) -> None:
    said = embed_prompt(" ".join(words), 512, "words")
    assert np.array_equal(said, embed_prompt(" ".join([*reversed(words), words[0]]).upper() + "!", 512, "words"))


def test_words_are_told_apart_by_several_buckets() -> None:
    """A strange word that falls into one bucket of a known one is still far from it."""
    known = {word: embed_prompt(word, 512, "words") for word in ("red", "green", "blue", "white", "yellow", "lift", "put")}
    assert all(0 < np.abs(vector).sum() <= WORD_HASHES / 2 for vector in known.values())
    strange = [embed_prompt(f"w{number}", 512, "words") for number in range(3000)]
    near = [float(vector @ other) for vector in known.values() for other in strange]
    assert max(near) <= 0.5
    assert np.mean(np.abs(near) >= 0.25) < 0.05


def test_a_bag_is_of_unit_length_and_knows_neighbours() -> None:
    one, other = embed_prompt("put red on blue"), embed_prompt("put blue on red")
    assert np.linalg.norm(one) == pytest.approx(1)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("encoding", ["bag", "words"])
def test_a_text_without_words_is_zeros(encoding: str) -> None:
    assert not embed_prompt(" ?! ", 64, encoding).any()  # type: ignore[arg-type]
