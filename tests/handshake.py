"""TLS handshakes without a network: which certificate a client presents."""

import contextlib
import ssl
from pathlib import Path


def presented(context: ssl.SSLContext, server: Path, *authorities: Path) -> bytes | None:
    """The certificate (DER) that a client with this context presents to a server that wants one.

    `server`: a folder with server.crt and server.key. `authorities`: files that the server trusts,
    by default the folder's ca.crt. The context verifies nothing afterwards.
    """
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    wanting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    wanting.load_cert_chain(server / "server.crt", server / "server.key")
    for authority in authorities or (server / "ca.crt",):
        wanting.load_verify_locations(authority)
    wanting.verify_mode = ssl.CERT_OPTIONAL
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, end = context.wrap_bio(down, up), wanting.wrap_bio(up, down, server_side=True)
    for side in (client, end, client, end):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return end.getpeercert(binary_form=True)
