"""Creates TLS connections and servers that use half the CPU, if the extra `fast` is installed.

The library behind it reads the peer's certificate through a temporary file. On a read-only file
system without /tmp, asyncio's own transports are used.
"""

import asyncio
import logging
import tempfile
from typing import Any, Final

# Iterations of the loop in which a transport that was closed closes its socket.
CLOSE_ITERATIONS: Final = 8

create_connection: Any = asyncio.BaseEventLoop.create_connection
create_server: Any = asyncio.BaseEventLoop.create_server
try:
    import aiofastnet

    tempfile.gettempdir()
except (ImportError, FileNotFoundError):
    pass
else:
    create_connection, create_server = aiofastnet.create_connection, aiofastnet.create_server
    logging.getLogger("aiofastnet").setLevel(logging.INFO)  # it tells of each connection


async def stop_accepting(server: asyncio.Server) -> None:
    """Accepts no more connections, and waits until those that were accepted have their transports.
    Where a server closes before that, Python 3.11 leaves their sockets open."""
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    await finish_closing()


async def finish_closing() -> None:
    """Lets transports that were closed or aborted close their sockets, before the loop ends."""
    for _ in range(CLOSE_ITERATIONS):
        await asyncio.sleep(0)
