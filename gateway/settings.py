"""The server's configuration: one TOML file, overridden by environment variables, every key typed and explained.

Order, the strongest first: arguments of `load_settings`, `ANTIPHON_<TABLE>__<KEY>` environment variables, the TOML file,
the defaults. An unknown key is an error that names it.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import tomllib
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ..engines.cpu import ThreadBudget, available_cores
from ..engines.interface import Role
from ..engines.weights import home
from ..sessions.policy import SessionLimits, TurnTakingPolicy
from ..sessions.rates import TokenBucket
from ..sessions.session_config import TurnDetection
from . import defaults
from .errors import SettingsError
from .transports.webrtc.limits import WebRtcLimits
from .transports.websocket import WebSocketLimits

DEFAULT_FILE = "antiphon.toml"
"""Read from the current folder when no file is named."""

LONGEST_PAUSE_S = 10.0
"""In the reading of a connection: pings go unanswered meanwhile, and both sides wait 20 s for that."""

_turn_detection: TypeAdapter[TurnDetection] = TypeAdapter(TurnDetection)


class Table(BaseModel):
    """A table of the configuration; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(Table):
    """`[server]`: where it listens, who may come in, how it stops."""

    host: str = "127.0.0.1"
    port: int = Field(default=8765, ge=0, le=65535)
    """0: any free port."""
    pipelines: tuple[str, ...] = ("voice", "tone")
    """The pipelines that are loaded and served."""
    media: tuple[str, ...] = ("tinyflow",)
    """The diffusion engines that are loaded and served for images and videos; the first that can answers to unknown model names."""
    api_keys: tuple[str, ...] = ()
    """Accepted keys, in the clear or as `sha256:<hex>`; none: everybody may come in."""
    secret: str = ""
    """Signs ephemeral keys (`ek_…`); "": made up at each start. Servers that share it accept each other's."""
    cors_origins: tuple[str, ...] = ()
    """Web origins whose pages may call the HTTP routes."""
    drain_s: float = Field(default=20.0, ge=0, le=3600)
    """How long running responses may take to finish after SIGTERM."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "text", "json"] = "auto"
    """auto: text on a terminal, JSON lines elsewhere."""

    @field_validator("api_keys")
    @classmethod
    def _keys_can_be_read(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        for key in keys:
            if key.startswith("sha256:") and not re.fullmatch(r"sha256:[0-9a-fA-F]{64}", key):
                raise ValueError("a key that begins with 'sha256:' must go on with 64 hexadecimal digits")
            if not key:
                raise ValueError("a key must not be empty")
        return keys


class RegistrySettings(Table):
    """`[registry]`: how many sessions, and for how long."""

    capacity: int = Field(default=64, ge=1)
    """Sessions at once."""
    waiting: int = Field(default=8, ge=0)
    """Clients that may wait for a place."""
    waiting_s: float = Field(default=5.0, ge=0, le=60)
    """How long they wait before they are refused with `retry-after`."""
    evict_after_s: float = Field(default=60.0, ge=0)
    """A full server evicts the session that was idle longest, if it was idle for so long."""
    idle_s: float = Field(default=900.0, gt=0)
    """A session without any activity ends after this."""
    lifetime_s: float = Field(default=3600.0, gt=0)
    """No session lives longer."""
    warn_s: float = Field(default=60.0, ge=0)
    """How long before an end by time the client is warned."""


class PipelineSettings(Table):
    """`[pipelines.NAME]`: the engine of each role, by its name in `[engines]`. A role may be left out with ""."""

    vad: str | None = None
    turn_end: str | None = None
    asr: str | None = None
    chat: str
    speech: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _empty_is_none(cls, table: Any) -> Any:
        return {key: value or None for key, value in table.items()} if isinstance(table, dict) else table

    def engines(self) -> dict[Role, str]:
        """The engine's name of each role that the pipeline has."""
        return {role: name for role in Role if (name := getattr(self, role.value, None)) is not None}


class EngineSettings(Table):
    """`[engines.NAME]`: the kind of engine and its options."""

    kind: str
    options: dict[str, Any] = {}
    process: bool = False
    """Run it in a process of its own."""
    nice: int = Field(default=0, ge=0, le=19)
    """How far that process steps back for others (the operating system's niceness)."""
    python: str = ""
    """Another interpreter for that process, one that has antiphon too; "": this one."""


class ModelSettings(Table):
    """`[models]`: which pipeline answers to which model name."""

    aliases: dict[str, str] = {}
    """Model names and the pipelines that answer to them; a pipeline's own name always works."""
    fallback: str = ""
    """The pipeline for every other name (stock clients ask for "gpt-realtime"); "": the first of server.pipelines."""
    strict: bool = False
    """Refuse names that are not listed, instead of the fallback."""


class SessionSettings(Table):
    """`[session]`: what a new session starts with; clients change it with `session.update`."""

    instructions: str = defaults.INSTRUCTIONS
    voice: str = ""
    """"" takes the speech engine's first voice."""
    turn_detection: dict[str, Any] = {"type": "server_vad"}
    """As in the protocol; `type = "none"` for manual turns."""
    transcription: bool = True
    """Send the transcript of what the user says."""

    def first_turn_detection(self) -> TurnDetection | None:
        """The turn detection of a new session."""
        if self.turn_detection.get("type") == "none":
            return None
        detection: TurnDetection = _turn_detection.validate_python(self.turn_detection)
        return detection

    @model_validator(mode="after")
    def _turn_detection_is_valid(self) -> SessionSettings:
        try:
            self.first_turn_detection()
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = ".".join(("turn_detection", *(str(part) for part in first["loc"][1:])))
            raise ValueError(f"{path}: {first['msg']}") from None
        return self


class RecordingSettings(Table):
    """`[recording]`: keep every session's inbound events for `antiphon replay`."""

    on: bool = False
    folder: Path = Path("recordings")
    max_mb: int = Field(default=256, ge=1)
    """A session's recording ends at this size."""


class JobSettings(Table):
    """`[jobs]`: the durable queue of image and video jobs."""

    work: bool = True
    """Work on jobs in this server; false: it only takes them, and `antiphon worker` processes do the work."""
    folder: str = ""
    """Holds the SQLite database and the artifacts, unless the two keys below name other places; "": `jobs` where the weights are kept."""
    database: str = ""
    """"": SQLite in `folder`. Or "postgresql://user:password@host/name"."""
    artifacts: str = ""
    """"": in `folder`. Or a folder, or "s3://bucket/prefix" (credentials and endpoint from the AWS_* environment variables)."""
    dispatcher: Literal["auto", "lease", "procrastinate"] = "auto"
    """auto: procrastinate on PostgreSQL, lease on SQLite."""
    poll_s: float = Field(default=0.2, gt=0, le=60)
    """How often the queue is looked at for what other processes put in."""
    lease_s: float = Field(default=15.0, gt=0, le=3600)
    """A worker that says nothing for so long is taken for dead; its job is done anew."""
    max_attempts: int = Field(default=3, ge=1, le=20)
    max_active: int = Field(default=64, ge=1)
    """Unfinished jobs that one API key may have."""
    per_minute: int = Field(default=240, ge=1)
    """Jobs that one API key may submit in a minute."""
    expires_s: float = Field(default=86_400.0, gt=0)
    """How long an ended job and its files are kept."""
    uploads_s: float = Field(default=604_800.0, gt=0)
    """How long an uploaded file is kept."""
    upload_bytes: int = Field(default=33_554_432, ge=1, le=33_554_432)
    """The largest upload."""
    sync_s: float = Field(default=600.0, gt=0)
    """How long a call that waits for its picture or clip waits."""
    webhooks: tuple[str, ...] = ()
    """URLs that are told of every ended job."""
    webhook_secret: str = ""
    """Signs them, as "whsec_<base64>" or any text; "": they are not signed."""
    webhook_attempts: int = Field(default=8, ge=1, le=50)
    """How often a webhook is tried, with a growing pause."""
    webhook_private: bool = False
    """Let clients name webhook URLs on private and loopback addresses."""

    def place(self) -> Path:
        """The folder."""
        return Path(self.folder).expanduser() if self.folder else home() / "jobs"


class RobotSettings(Table):
    """`[robots]`: policies for robots that speak OpenPI's protocol."""

    policies: tuple[str, ...] = ("tabletop",)
    """The action engines that are loaded and served; the first answers robots that name none."""
    openpi_port: int = Field(default=-1, ge=-1, le=65535)
    """A port on which robots find the endpoint at every path, as with openpi's own server; 0: any free one; -1: none."""
    max_frame_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    """A larger observation closes the connection with 1009."""
    bytes_per_second: int = Field(default=0, ge=0)
    """Of observations, on average and for each connection. Beyond it nothing more is read until the time has passed: nothing is lost, and
    the robot's own sending slows down. 0: no bound, since pictures of many megabytes at 20 Hz are as legal as a handful of numbers, and
    connections take turns anyhow."""
    bytes_burst: int = Field(default=128 * 1024 * 1024, ge=1)
    """Bytes that may come at once."""
    max_values: int = Field(default=4096, ge=64)
    """Values in an observation; an array counts as a few."""
    lease_s: float = Field(default=30.0, ge=0, le=86_400)
    """How long a session with a `session_id` outlives its connection."""
    infer_s: float = Field(default=120.0, gt=0, le=3600)
    """How long a policy may take over a chunk before its engine counts as stuck."""

    @model_validator(mode="after")
    def _pauses_are_shorter_than_keepalive(self) -> RobotSettings:
        if self.bytes_per_second and self.bytes_per_second * LONGEST_PAUSE_S < self.max_frame_bytes:
            raise ValueError(
                f"bytes_per_second is too small for max_frame_bytes: one frame would stop the reading for more than {LONGEST_PAUSE_S:g} s, "
                f"and the connection would be taken for dead. Set it to {math.ceil(self.max_frame_bytes / LONGEST_PAUSE_S)} or more, or "
                "make max_frame_bytes smaller"
            )
        return self

    def byte_budget(self) -> TokenBucket | None:
        """Of a new connection; None: there is no bound."""
        return TokenBucket(self.bytes_burst, self.bytes_burst / self.bytes_per_second) if self.bytes_per_second else None


class ThreadSettings(Table):
    """`[threads]`: the CPU threads of the embedded engines; 0 lets the budget decide."""

    cores: int = Field(default=0, ge=0)
    """The cores to share out; 0: all that this process may use."""
    chat: int = Field(default=0, ge=0)
    asr: int = Field(default=0, ge=0)
    vad: int = Field(default=0, ge=0)
    turn_end: int = Field(default=0, ge=0)
    speech: int = Field(default=0, ge=0)

    def budget(self) -> ThreadBudget:
        """The budget for this machine, with the figures that were set here."""
        budget = ThreadBudget.for_machine(self.cores or available_cores())
        chosen = {role: count for role, count in self.model_dump(exclude={"cores"}).items() if count}
        return dataclasses.replace(budget, **chosen)


def table_of(kind: type[Any]) -> type[Table]:
    """A table whose keys are the fields of a dataclass, with its defaults; numbers may not be negative."""
    hints = typing.get_type_hints(kind)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        fields[field.name] = (Annotated[hint, Field(ge=0)] if hint in (int, float) else hint, field.default)
    return create_model(f"{kind.__name__}Table", __base__=Table, **fields)


TurnTakingTable: Any = table_of(TurnTakingPolicy)
LimitsTable: Any = table_of(SessionLimits)
ConnectionTable: Any = table_of(WebSocketLimits)
WebRtcTable: Any = table_of(WebRtcLimits)


class _DefaultTables(PydanticBaseSettingsSource):
    """The default engines and pipelines, as the weakest source, so that a file may change one key of one of them."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        return defaults.without_overridden_kinds(self.current_state)


class _File(PydanticBaseSettingsSource):
    """The tables of the TOML file."""

    def __init__(self, settings_class: type[BaseSettings], tables: dict[str, Any]) -> None:
        super().__init__(settings_class)
        self._tables = tables

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._tables.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self._tables


class Settings(BaseSettings):
    """Everything that can be configured. Made by `load_settings`."""

    model_config = SettingsConfigDict(env_prefix="ANTIPHON_", env_nested_delimiter="__", extra="forbid", frozen=True)

    server: ServerSettings = ServerSettings()
    registry: RegistrySettings = RegistrySettings()
    models: ModelSettings = ModelSettings()
    session: SessionSettings = SessionSettings()
    turn_taking: TurnTakingTable = TurnTakingTable()
    limits: LimitsTable = LimitsTable()
    connection: ConnectionTable = ConnectionTable()
    webrtc: WebRtcTable = WebRtcTable()
    pipelines: dict[str, PipelineSettings] = {}
    engines: dict[str, EngineSettings] = {}
    threads: ThreadSettings = ThreadSettings()
    recording: RecordingSettings = RecordingSettings()
    jobs: JobSettings = JobSettings()
    robots: RobotSettings = RobotSettings()

    @model_validator(mode="after")
    def _names_exist(self) -> Settings:
        for name in self.server.pipelines:
            if name not in self.pipelines:
                raise ValueError(f"server.pipelines names {name!r}, but there is no [pipelines.{name}]")
        for name in self.server.media:
            if name not in self.engines:
                raise ValueError(f"server.media names {name!r}, but there is no [engines.{name}]")
        for name in self.robots.policies:
            if name not in self.engines:
                raise ValueError(f"robots.policies names {name!r}, but there is no [engines.{name}]")
        if not self.server.pipelines:
            raise ValueError("server.pipelines is empty: name at least one pipeline to serve")
        for name in self.server.pipelines:
            for role, engine in self.pipelines[name].engines().items():
                if engine not in self.engines:
                    raise ValueError(f"pipelines.{name}.{role.value} names {engine!r}, but there is no [engines.{engine}]")
        return self

    def turn_taking_policy(self) -> TurnTakingPolicy:
        return TurnTakingPolicy(**self.turn_taking.model_dump())

    def session_limits(self) -> SessionLimits:
        return SessionLimits(**self.limits.model_dump())

    def webrtc_limits(self) -> WebRtcLimits:
        return WebRtcLimits(**self.webrtc.model_dump())

    def websocket_limits(self) -> WebSocketLimits:
        return WebSocketLimits(**self.connection.model_dump())

    def pipeline_for(self, model: str) -> str | None:
        """The served pipeline that answers to a model name; None: nobody does."""
        served = self.server.pipelines
        for name in (self.models.aliases.get(model, model), self.models.fallback, served[0]):
            if name in served:
                return name
            if self.models.strict:
                break
        return None


def load_settings(path: Path | None = None, **overrides: Any) -> Settings:
    """Read the configuration: `path`, else `./antiphon.toml` if it is there. `overrides` are tables, the strongest source.

    Raises `SettingsError` with a sentence for each key that is wrong.
    """
    if path is None and Path(DEFAULT_FILE).is_file():
        path = Path(DEFAULT_FILE)
    tables = _read(path) if path is not None else {}

    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, _File(settings_cls, tables), _DefaultTables(settings_cls)

    try:
        return FromFile(**overrides)
    except ValidationError as error:
        where = str(path) if path is not None else "the configuration"
        raise SettingsError("\n".join(_sentence(where, detail) for detail in error.errors(include_url=False))) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"There is no configuration file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}.") from None


def _sentence(where: str, detail: Any) -> str:
    path = ".".join(str(part) for part in detail["loc"])
    if detail["type"] != "extra_forbidden":
        message = detail["msg"].removeprefix("Value error, ")
        return f"{where}: {path}: {message}." if path else f"{where}: {message}."
    known = _known_keys(detail["loc"][:-1])
    near = difflib.get_close_matches(str(detail["loc"][-1]), known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else f" Known keys: {', '.join(known)}."
    return f"{where}: unknown key {path!r}.{hint}"


def _known_keys(location: tuple[Any, ...]) -> list[str]:
    """The keys of the table at `location`."""
    table: Any = Settings
    for part in location:
        if isinstance(table, type) and issubclass(table, BaseModel):
            field = table.model_fields.get(str(part))
            table = field.annotation if field is not None else None
        elif typing.get_origin(table) is dict:
            table = typing.get_args(table)[1]
    return sorted(table.model_fields) if isinstance(table, type) and issubclass(table, BaseModel) else []
