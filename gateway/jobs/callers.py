"""Posts to URLs that somebody else named, without being led astray: the name is resolved once, the address judged, and that address called.
Redirects are not followed, proxies of the environment not used, answers not read."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from urllib.parse import SplitResult, urlsplit

import httpx

from .errors import JobError

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LONGEST = 2048


class InvalidWebhookError(JobError):
    """A webhook's URL that cannot be called, or may not be."""

    code = "invalid_webhook_url"


class ForbiddenAddressError(InvalidWebhookError):
    """Its address belongs to a private network, to this machine, or to nobody."""


def check_url(url: str, *, private: bool) -> SplitResult:
    """The parts of a URL that may be called as far as can be told without asking for its address. Raises `InvalidWebhookError`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidWebhookError(f"The webhook URL is not valid: {error}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or len(url) > _LONGEST:
        raise InvalidWebhookError(f"A webhook URL must look like https://host/path and have at most {_LONGEST} characters.")
    if any(character <= " " or character == "\x7f" for character in url):
        raise InvalidWebhookError("A webhook URL must not contain spaces or control characters.")
    if parts.username is not None or parts.password is not None:
        raise InvalidWebhookError("A webhook URL must not contain a user name or password.")
    if port == 0:
        raise InvalidWebhookError("A webhook URL cannot have port 0.")
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise InvalidWebhookError("The webhook URL's host name is not valid.") from None
    if not private:
        if parts.hostname == "localhost" or parts.hostname.endswith(".localhost"):
            raise _forbidden(parts.hostname)
        try:
            literal = ipaddress.ip_address(parts.hostname)
        except ValueError:
            return parts
        if not is_public(literal):
            raise _forbidden(parts.hostname)
    return parts


def is_public(address: IPAddress) -> bool:
    """Whether an address belongs to the public internet, whatever it is wrapped in."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_reserved and not address.is_unspecified


async def resolve(host: str, port: int, *, private: bool) -> str:
    """An address of `host` that may be called. Raises `ForbiddenAddressError`, `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        if private or is_public(ipaddress.ip_address(address.partition("%")[0])):
            return address
    raise _forbidden(f"{host} ({', '.join(dict.fromkeys(addresses))})")


class Caller:
    """One HTTP client for all calls. `context`: whose certificates are trusted, instead of the usual ones. Close it."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        limits = httpx.Limits(max_connections=32, max_keepalive_connections=0)  # a kept connection would outlive its address's judgement
        self._client = httpx.AsyncClient(follow_redirects=False, trust_env=False, limits=limits, verify=context or True)

    async def post(self, url: str, body: bytes, headers: dict[str, str], *, private: bool, seconds: float) -> int:
        """The status of the answer. Raises `InvalidWebhookError` when it may not be called, `OSError` when there was no answer in time."""
        parts = check_url(url, private=private)
        host = str(parts.hostname)
        try:
            async with asyncio.timeout(seconds):
                port = parts.port or (443 if parts.scheme == "https" else 80)
                address = await resolve(host, port, private=private)
                named = httpx.URL(url)
                # The address is called, but by the name: in the Host header, and as the name that the certificate must have.
                headers = {**headers, "host": named.netloc.decode("ascii")}
                extensions = {"sni_hostname": named.raw_host.decode("ascii")} if parts.scheme == "https" else {}
                target = named.copy_with(host=address, port=port)
                async with self._client.stream(
                    "POST", target, content=body, headers=headers, extensions=extensions, timeout=seconds
                ) as response:
                    return response.status_code
        except TimeoutError:
            raise OSError(f"no answer within {seconds:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise OSError(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        await self._client.aclose()


def _forbidden(host: str) -> ForbiddenAddressError:
    return ForbiddenAddressError(
        f"The webhook's address {host} is not on the public internet. Allow such addresses with jobs.webhook_private, or name one that is."
    )
