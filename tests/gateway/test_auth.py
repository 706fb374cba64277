"""API keys: digests, headers, subprotocols."""

from __future__ import annotations

import hashlib

import pytest
from antiphon.gateway.auth import KeyRing, offered_key
from antiphon.gateway.errors import ApiError


def test_without_keys_everybody_may_come_in() -> None:
    ring = KeyRing(())
    assert not ring
    ring.require({})


def test_a_key_opens_the_door_and_another_does_not() -> None:
    ring = KeyRing(("alpha", "beta"))
    ring.require({"authorization": "Bearer beta"})
    with pytest.raises(ApiError) as refusal:
        ring.require({"authorization": "Bearer gamma"})
    assert refusal.value.status == 401
    assert refusal.value.code == "invalid_api_key"
    assert "gamma" not in refusal.value.message


def test_a_key_may_be_configured_as_a_digest() -> None:
    ring = KeyRing(("sha256:" + hashlib.sha256(b"alpha").hexdigest(),))
    assert ring.accepts("alpha")
    assert not ring.accepts("beta")
    assert not ring.accepts(None)


def test_a_browser_offers_the_key_as_a_subprotocol() -> None:
    offered = ["realtime", "openai-insecure-api-key.alpha"]
    assert offered_key({}, offered) == "alpha"
    KeyRing(("alpha",)).require({}, offered)


@pytest.mark.parametrize("header", ["", "alpha", "Basic alpha", "Bearer", "Bearer  "])
def test_a_missing_key_is_refused(header: str) -> None:
    with pytest.raises(ApiError, match="No API key"):
        KeyRing(("alpha",)).require({"authorization": header} if header else {})


@pytest.mark.parametrize(
    "origin", [None, "http://localhost:5173", "http://127.0.0.1:8765", "https://voice.example:8443", "https://friend.example"]
)
def test_without_keys_own_and_named_pages_may_come_in(origin: str | None) -> None:
    headers = {"host": "voice.example:8443"} | ({"origin": origin} if origin else {})
    KeyRing([], ["https://friend.example"]).require(headers)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://", "https://[::1", "http://voice.example"])
def test_without_keys_foreign_pages_may_not(origin: str) -> None:
    with pytest.raises(ApiError) as refusal:
        KeyRing([]).require({"host": "voice.example:8443", "origin": origin})
    assert (refusal.value.status, refusal.value.code) == (403, "origin_not_allowed")


def test_with_keys_the_key_decides() -> None:
    KeyRing(["secret"]).require({"origin": "https://anywhere.example", "authorization": "Bearer secret"})
