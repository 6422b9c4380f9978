"""The TLS context of a server, with a certificate from files or a self-signed certificate.

Certificate files are reloaded when they have changed.
"""

import asyncio
import logging
import os
import ssl
from pathlib import Path
from typing import Final

from stower.pki.certificates import make_self_signed

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0  # how long an old certificate is shown after its files have changed


class ServingError(Exception):
    """There is nothing to show; the text says why."""


class Serving:
    """A context for a server's sockets."""

    def __init__(self, certificate: Path | None, key: Path | None, hosts: tuple[str, ...]) -> None:
        """Without files, for these hosts. Raises ServingError."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._files = (certificate, key) if certificate is not None and key is not None else None
        self._seen = self._file_stamps()
        if self._files is None:
            _load(self.context, make_self_signed("stower", hosts))
            return
        try:
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            raise ServingError(
                f"cannot load {certificate} and {key}: {error.strerror or error}"
            ) from None

    def _file_stamps(self) -> tuple[tuple[int, int], ...]:
        try:
            found = [path.stat() for path in self._files or ()]
        except OSError:
            return ()
        return tuple((one.st_mtime_ns, one.st_size) for one in found)

    async def keep_fresh(self, every_s: float = LOOK_SECONDS) -> None:
        """Show what the files hold, for ever; what cannot be read changes nothing."""
        while self._files is not None:
            await asyncio.sleep(every_s)
            seen = self._file_stamps()
            if not seen or seen == self._seen:
                continue
            try:
                self.context.load_cert_chain(*self._files)
                self._seen = seen
                log.info("reloaded the certificate %s", self._files[0])
            except (OSError, ssl.SSLError) as error:
                log.warning(
                    "cannot reload the certificate %s, still serving the previous one: %s",
                    self._files[0],
                    error,
                )


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """From memory: a file system may be read-only, and a key is best not in it."""
    descriptor = os.memfd_create("stower-certificate")
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
