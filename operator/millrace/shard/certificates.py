"""TLS towards the endpoint: whom to trust and who we are, from files that change under us.

Secrets are mounted as files and rotate without a restart. So the files are looked at before every connection,
and read again when they are not the ones that were read. Connections that exist stay as they are.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

Seen = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files; without a CA the system's are trusted, without a certificate we show none."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class TlsContexts:
    """The context for the next connection."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._context: ssl.SSLContext | None = None
        self._seen: Seen = ()

    def current(self) -> ssl.SSLContext:
        """Made of the files as they are now. Raises OSError (ssl.SSLError is one) if they cannot be used."""
        seen = tuple(_signature(path) for path in (self._files.ca, self._files.certificate, self._files.key))
        if self._context is None or seen != self._seen:
            self._context = _context(self._files)
            self._seen = seen
        return self._context


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.certificate is not None:
        context.load_cert_chain(files.certificate, files.key)
    return context


def _signature(path: Path | None) -> tuple[int, int, int] | None:
    """Tells one content from another: a mounted Secret is replaced as a whole, so its file is another one."""
    if path is None:
        return None
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size
