"""The catalogue is consistent with itself."""

from __future__ import annotations

import re

from antiphon.engines.catalogue import HUB_MODELS, MODELS, SETS, find
from antiphon.engines.interface import Role


def test_names_are_unique_and_found() -> None:
    assert len({model.name for model in MODELS}) == len(MODELS)
    assert all(find(model.name) is model for model in MODELS)


def test_every_file_has_a_hash_a_size_and_a_pinned_source() -> None:
    for file in (file for model in MODELS for file in model.files):
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256), file.name
        assert file.size > 0
        assert file.parts
        assert all(re.fullmatch(r"\d+\.\d+\.\d+", part.version) for part in file.parts)


def test_keys_and_file_names_are_unique_within_a_model() -> None:
    for model in MODELS:
        assert len({file.key for file in model.files}) == len({file.name for file in model.files}) == len(model.files)


def test_licences_allow_use_everywhere() -> None:
    assert {model.licence for model in MODELS} <= {"MIT", "Apache-2.0", "BSD-2-Clause"}


def test_the_default_set_serves_every_role_that_needs_weights() -> None:
    assert {find(name).role for name in SETS["default"]} == {Role.VAD, Role.TURN_END, Role.ASR, Role.CHAT}
    assert all(find(name) for names in SETS.values() for name in names)
    assert set(SETS["default"]) < set(SETS["scenario"]) < set(SETS["all"])


def test_every_role_has_a_name_for_a_deployment_with_a_hub() -> None:
    # Policies of others need an adapter each; there is none yet.
    assert {model.role for model in HUB_MODELS} == set(Role) - {Role.ACTION}
