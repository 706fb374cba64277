"""The configuration: defaults, file, environment, and errors that name the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from antiphon.gateway.errors import SettingsError
from antiphon.gateway.settings import Settings, load_settings
from antiphon.sessions.policy import SessionLimits, TurnTakingPolicy

EXAMPLE = Path(__file__).parents[2] / "antiphon.example.toml"


def load(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "antiphon.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_example_says_what_the_defaults_are() -> None:
    assert load_settings(EXAMPLE).model_dump() == load_settings().model_dump()


def test_the_example_explains_every_key() -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    settings = load_settings().model_dump()
    for table in ("server", "registry", "models", "session", "turn_taking", "limits", "connection", "threads", "recording", "jobs"):
        for key in settings[table]:
            assert any(line.startswith((f"{key} =", f"[{table}.{key}]")) for line in lines), f"{table}.{key}"


def test_the_session_tables_are_the_dataclasses() -> None:
    settings = load_settings()
    assert settings.turn_taking_policy() == TurnTakingPolicy()
    assert settings.session_limits() == SessionLimits()


def test_a_file_in_the_current_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text("[server]\nport = 1234\n")
    assert load_settings().server.port == 1234


def test_the_environment_is_stronger_than_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_SERVER__PORT", "4321")
    monkeypatch.setenv("ANTIPHON_TURN_TAKING__CONFIRM_MS", "0")
    settings = load(tmp_path, "[server]\nport = 1234\nhost = '0.0.0.0'\n")
    assert settings.server.port == 4321
    assert settings.server.host == "0.0.0.0"
    assert settings.turn_taking_policy().confirm_ms == 0


def test_arguments_are_the_strongest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_SERVER__PORT", "4321")
    assert load_settings(server={"port": 0}).server.port == 0


def test_another_chat_model_is_one_key(tmp_path: Path) -> None:
    voice = load(tmp_path, "[pipelines.voice]\nchat = 'qwen'\n").pipelines["voice"]
    assert voice.chat == "qwen"
    assert voice.speech == "hibari"


def test_another_kind_of_engine_does_not_inherit_the_old_ones_options(tmp_path: Path) -> None:
    settings = load(tmp_path, "[engines.smollm2]\nkind = 'openai-chat'\noptions.url = 'http://127.0.0.1:1/v1'\n")
    assert settings.engines["smollm2"].options == {"url": "http://127.0.0.1:1/v1"}


def test_a_role_can_be_left_out(tmp_path: Path) -> None:
    voice = load(tmp_path, "[pipelines.voice]\nturn_end = ''\n").pipelines["voice"]
    assert voice.turn_end is None
    assert "turn_end" not in voice.engines()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nprot = 1", "unknown key 'server.prot'. Did you mean 'port'?"),
        ("[sever]\nport = 1", "unknown key 'sever'. Did you mean 'server'?"),
        ("[turn_taking]\nconfirm = 1", "unknown key 'turn_taking.confirm'. Did you mean 'confirm_ms'?"),
        ("[pipelines.voice]\ntts = 'x'", "unknown key 'pipelines.voice.tts'"),
        ("[limits]\nlead_ms = -1", "limits.lead_ms: "),
        ("[server]\nport = 'x'", "server.port: "),
        ("[pipelines.voice]\nchat = 'gpt'", "pipelines.voice.chat names 'gpt', but there is no [engines.gpt]"),
        ("[server]\npipelines = ['song']", "server.pipelines names 'song', but there is no [pipelines.song]"),
        ("[session.turn_detection]\ntype = 'server_vad'\nthreshold = 3.0", "turn_detection.threshold"),
        ("[server]\napi_keys = ['sha256:12']", "64 hexadecimal digits"),
        ("port = ", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(tmp_path, text)
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no configuration file"):
        load_settings(tmp_path / "nowhere.toml")


def test_model_names_lead_to_pipelines(tmp_path: Path) -> None:
    settings = load(tmp_path, "[models.aliases]\n'gpt-realtime' = 'tone'\n")
    assert settings.pipeline_for("gpt-realtime") == "tone"
    assert settings.pipeline_for("tone") == "tone"
    assert settings.pipeline_for("antiphon-tone") == "tone"
    assert settings.pipeline_for("whatever") == "voice"
    strict = load(tmp_path, "[models]\nstrict = true\n")
    assert strict.pipeline_for("voice") == "voice"
    assert strict.pipeline_for("whatever") is None
