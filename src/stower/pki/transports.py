"""Creates TLS connections and servers that use half the CPU, if the extra `fast` is installed.

The library behind it reads the peer's certificate through a temporary file. On a read-only file
system without /tmp, asyncio's own transports are used.
"""

import asyncio
import logging
import tempfile
from typing import Any

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
