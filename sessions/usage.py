"""What a response used, as the protocol counts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

AUDIO_TOKEN_MS = 50
"""Speech counts a token each 50 ms, as OpenAI's does."""


@dataclass(slots=True)
class TokenCount:
    """Tokens of the chat model, as the engine counted them."""

    input: int = 0
    output: int = 0
    cached: int = 0
    words: int = 0
    """Words given out: the estimate of a response that was stopped before its engine had counted."""

    def wire(self, spoken_ms: int) -> dict[str, Any]:
        """The `usage` of a response that spoke for `spoken_ms`."""
        text = self.output or self.words
        audio = -(-spoken_ms // AUDIO_TOKEN_MS)
        return {
            "total_tokens": self.input + text + audio,
            "input_tokens": self.input,
            "output_tokens": text + audio,
            "input_token_details": {
                "text_tokens": self.input,
                "audio_tokens": 0,
                "image_tokens": 0,
                "cached_tokens": self.cached,
                "cached_tokens_details": {"text_tokens": self.cached, "audio_tokens": 0, "image_tokens": 0},
            },
            "output_token_details": {"text_tokens": text, "audio_tokens": audio},
        }
