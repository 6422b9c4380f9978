"""A way to a server on which connections are cut again and again."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import yaml

READ = 1 << 16


@contextlib.contextmanager
def cutting(kubeconfig: Path, proxied: Path, every_s: float) -> Iterator[Callable[[], int]]:
    """Write a kubeconfig whose server cuts all its connections so often; yields how many so far."""
    config = yaml.safe_load(kubeconfig.read_text())
    target = urlsplit(config["clusters"][0]["cluster"]["server"])
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"https://127.0.0.1:{listener.getsockname()[1]}"
    config["clusters"][0]["cluster"]["server"] = url
    proxied.write_text(yaml.safe_dump(config))
    proxied.chmod(0o600)
    lock = threading.Lock()
    pairs: list[tuple[socket.socket, socket.socket]] = []
    stop = threading.Event()
    count = 0

    def accept() -> None:
        while not stop.is_set():
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection((target.hostname, target.port))
            with lock:
                pairs.append((near, far))
            threading.Thread(target=_pump, args=(near, far), daemon=True).start()

    def cut() -> None:
        nonlocal count
        while not stop.wait(every_s):
            with lock:
                gone = pairs[:]
                pairs.clear()
            count += len(gone)
            for pair in gone:
                _end(pair)

    threads = [threading.Thread(target=run, daemon=True) for run in (accept, cut)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: count
    finally:
        stop.set()
        listener.close()
        for pair in pairs:
            _end(pair)


def _end(pair: tuple[socket.socket, socket.socket]) -> None:
    for end in pair:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _pump(near: socket.socket, far: socket.socket) -> None:
    """Both ways, until one end closes."""
    with near, far, selectors.DefaultSelector() as selector:
        selector.register(near, selectors.EVENT_READ, far)
        selector.register(far, selectors.EVENT_READ, near)
        with contextlib.suppress(OSError):
            while True:
                for key, _ in selector.select():
                    source: socket.socket = key.fileobj  # type: ignore[assignment]
                    data = source.recv(READ)
                    if not data:
                        return
                    key.data.sendall(data)
