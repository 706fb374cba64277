"""The callers' voices: utterances synthesised by a server of their own, kept as WAV files under a name made from their words.

The voices are Kokoro's, all unlike the assistant's own. Its English voices come from the npm registry; where they are not
installed, five voices that come from PyPI speak instead (made for Japanese, they speak clear English with English phonemes).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx

from ..codecs import wav
from .server import Server, ServerFailed

ENGLISH = ("af_bella", "am_michael", "bf_emma", "bm_george", "af_sarah", "am_adam")
FROM_PYPI = ("jf_alpha", "jm_kumo", "jf_tebukuro", "jf_gongitsune", "jf_nezumi")
TIMEOUT_S = 120.0

CONFIGURATION = """\
[server]
pipelines = ["callers"]
media = []

[robots]
policies = []

[pipelines.callers]
chat = "echo"
speech = "kokoro"
"""


class CallersFailed(Exception):
    """The callers' voices cannot be had."""


class Callers:
    """Utterances by the caller's number and their text. `folder` keeps them between runs."""

    def __init__(self, folder: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self._folder = folder
        self._tell = tell
        self._voices: tuple[str, ...] = ENGLISH

    def voice(self, caller: int) -> str:
        """The name of a caller's voice; there are at least five different ones."""
        return self._voices[caller % len(self._voices)]

    def path(self, caller: int, text: str) -> Path:
        """Where the utterance is kept."""
        voice = self.voice(caller)
        digest = hashlib.sha256(f"{voice}\n{text}".encode()).hexdigest()[:16]
        return self._folder / f"{voice}-{digest}.wav"

    def pcm(self, caller: int, text: str) -> bytes:
        """The utterance as 24 kHz PCM. Raises OSError when `prepare` was not called for it."""
        return wav.read(self.path(caller, text))

    async def prepare(self, wanted: Iterable[tuple[int, str]]) -> None:
        """Synthesise what is not there yet. Raises `CallersFailed`."""
        pairs = list(dict.fromkeys(wanted))
        failed: Exception | None = None
        for voices in (ENGLISH, FROM_PYPI):
            self._voices = voices
            missing = [pair for pair in pairs if not self.path(*pair).exists()]
            if not missing:
                return
            try:
                await self._make(missing)
                return
            except (ServerFailed, httpx.HTTPError) as error:
                failed = error
            if voices is ENGLISH and "kokoro-voices" in str(failed):
                self._tell("Kokoro's English voices are not installed (they need npm): the callers speak with the voices from PyPI.")
                continue
            break
        raise CallersFailed(f"The callers' voices could not be made: {failed}") from failed

    async def _make(self, missing: list[tuple[int, str]]) -> None:
        self._tell(f"Synthesising {len(missing)} utterances of the callers; they are kept in {self._folder}.")
        self._folder.mkdir(parents=True, exist_ok=True)
        configuration = self._folder / "callers.toml"
        voices_model = "" if self._voices is ENGLISH else '\n[engines.kokoro.options]\nvoices_folder = "kokoro-voices-pypi"\n'
        configuration.write_text(CONFIGURATION + voices_model)
        async with (
            Server(log=self._folder / "server.log", options=("--config", str(configuration))) as server,
            httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT_S, trust_env=False) as http,
        ):
            for caller, text in missing:
                body = {"model": "kokoro", "voice": self.voice(caller), "input": text, "response_format": "wav"}
                response = await http.post("/v1/audio/speech", json=body)
                response.raise_for_status()
                path = self.path(caller, text)
                partial = path.with_suffix(".part")
                await asyncio.to_thread(partial.write_bytes, response.content)
                partial.replace(path)
                self._tell(f"  {self.voice(caller)}: {text}")
