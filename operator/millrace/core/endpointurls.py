"""The URL of an endpoint: checked, and taken apart as a request needs it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from millrace.core.errors import DomainError

_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+", re.ASCII)
_TARGET = re.compile(r"[!-~]*", re.ASCII)
_PORTS = {"http": 80, "https": 443}


class InvalidUrl(DomainError):  # noqa: N818
    """A URL to which no message could be delivered."""


@dataclass(frozen=True, slots=True)
class EndpointUrl:
    """Where requests go."""

    tls: bool
    host: str
    port: int
    target: str
    """What stands in the request line: path and query."""

    @property
    def where(self) -> str:
        """For messages: without path and query, which may hold what is secret."""
        return f"{'https' if self.tls else 'http'}://{self.authority}"

    @property
    def authority(self) -> str:
        """What stands in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> EndpointUrl:
        """Read a URL; raise InvalidUrl, with what to change, for what cannot be requested as it stands."""
        # urlsplit drops line breaks and tabs silently; a URL that has them is not the one that was meant.
        if not _TARGET.fullmatch(url):
            raise InvalidUrl(
                f"the URL {url[:80]!r} has spaces, control characters or letters beyond ASCII; "
                "percent-encode them"
            )
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidUrl(f"{url[:80]!r} is no URL: {error}") from None
        if parts.scheme not in _PORTS or not parts.hostname:
            raise InvalidUrl(f"{url[:80]!r} is no URL of an endpoint: expected http://HOST or https://HOST")
        if "@" in parts.netloc:
            raise InvalidUrl(
                f"the URL of {parts.hostname} has a user or a password in it; "
                "put them into a header from a Secret"
            )
        if "#" in url:
            raise InvalidUrl(f"the URL {url[:80]!r} has a fragment, which is never sent; remove it")
        if not _HOST.fullmatch(parts.hostname) or port == 0:
            raise InvalidUrl(f"{parts.netloc[:80]!r} is no host, or host and port")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme == "https", parts.hostname, port or _PORTS[parts.scheme], target)
