"""Connections and servers with TLS at half the CPU, where the extra `fast` is installed.

It reads its peer's certificate by way of a temporary file: on a file system that is read-only, with
nothing mounted at /tmp, asyncio's own serve instead.
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
