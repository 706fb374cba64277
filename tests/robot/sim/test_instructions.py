"""The sentences: what is kept out is kept out, and each sentence belongs to one task."""

from __future__ import annotations

import numpy as np
import pytest
from antiphon.robot.sim.instructions import COLOURS, Language, meta_world_language, tabletop_language
from antiphon.robot.sim.tabletop_goals import GOALS

LANGUAGES = {"tabletop": tabletop_language(), "metaworld": meta_world_language()}


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES.keys())
def test_no_kept_out_sentence_is_trained_on(language: Language) -> None:
    for task, sentences in language.kept_out.items():
        trained = {" ".join(sentence.split()) for sentence in language.training[task]}
        assert sentences
        assert not trained & set(sentences)


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES.keys())
def test_no_sentence_belongs_to_two_tasks(language: Language) -> None:
    seen: dict[str, str] = {}
    for task in language.plain:
        for sentence in {language.plain[task], *language.training[task], *language.kept_out[task]}:
            assert seen.setdefault(sentence, task) == task


def test_kept_out_forms_have_words_that_training_never_heard() -> None:
    language = LANGUAGES["tabletop"]
    heard = {word for sentences in language.training.values() for sentence in sentences for word in sentence.split()}
    strange = [word for sentences in language.kept_out.values() for sentence in sentences for word in sentence.split() if word not in heard]
    assert len(set(strange)) > 20


def test_a_sentence_names_its_things() -> None:
    language = LANGUAGES["tabletop"]
    random = np.random.default_rng(0)
    for task, goal in GOALS.items():
        for _ in range(50):
            words = set(language.say(task, random).replace(",", "").split())
            assert words & set(COLOURS[goal.cube])
            if goal.pad:
                assert words & set(COLOURS[goal.pad])


def test_what_is_said_is_drawn_from_the_seed() -> None:
    language = LANGUAGES["tabletop"]
    said = [[language.say("lift-red", np.random.default_rng(seed)) for _ in range(3)] for seed in (1, 1, 2)]
    assert said[0] == said[1] != said[2]
