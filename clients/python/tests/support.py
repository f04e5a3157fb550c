"""Servers for the tests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import pathlib
import re
import socket
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from counterd import AsyncClient, Client

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parent.parent
RULES = PACKAGE.parent / "testdata" / "rules.yaml"
LONG = 60.0
"""A timeout that no test waits for."""


@functools.cache
def binary() -> str:
    """Returns the path of the working tree's counterd."""
    path = PACKAGE / "build" / "counterd"
    subprocess.run(["go", "build", "-o", path, "./cmd/counterd"], cwd=ROOT, check=True)
    return str(path)


class Counterd:
    """A counterd in memory, by default with the rules of the tests, on a free port."""

    def __init__(self, *args: str, rules: pathlib.Path = RULES, listen: str = "127.0.0.1:0") -> None:
        command = [binary(), "-timeout", "1s", "-rules", str(rules), "-listen", listen, *args]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        log = ""
        for line in self._process.stderr or ():
            log += line
            if match := re.search(r"msg=serving address=(\S+)", line):
                self.address = match[1]
                break
        else:
            raise AssertionError(f"counterd does not serve:\n{log}")
        self.url = f"http://{self.address}"
        self._drain = threading.Thread(target=self._process.stderr.read, daemon=True)
        self._drain.start()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._drain.join()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def __enter__(self) -> Counterd:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Relay:
    """Passes requests on to a server, keeps them, and holds each until the gate is open."""

    def __init__(self, url: str) -> None:
        self.seen: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        to = urllib.parse.urlsplit(url)
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                relay.seen.append((self.path, body.decode()))
                relay.gate.wait()
                connection = http.client.HTTPConnection(to.hostname or "", to.port)
                connection.request(self.command, self.path, body or None, {"Content-Type": "application/json"} if body else {})
                answer = connection.getresponse()
                text = answer.read()
                connection.close()
                with contextlib.suppress(OSError):  # the client may have left
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.getheader("Content-Type") or "")
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reached(self, requests: int = 1) -> None:
        """Waits until so many requests have come."""
        while len(self.seen) < requests:
            time.sleep(0.001)

    def keys(self) -> list[list[str]]:
        """Returns the values of the kind key of each request's hits."""
        return [re.findall(r'"key":"(\d+)"', body) for _, body in self.seen]


@contextlib.contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serves each connection by a function that gets it after the first request's head has been read."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def handle(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            read_request(connection)
            serve(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connections.append(connection)
            threading.Thread(target=handle, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for one in [listener, *connections]:
            one.close()


def read_request(connection: socket.socket) -> bytes:
    """Reads one request, and returns its first line."""
    text = b""
    while b"\r\n\r\n" not in text:
        chunk = connection.recv(1 << 16)
        if not chunk:
            raise OSError
        text += chunk
    head, _, body = text.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    while length and len(body) < int(length[1]):
        body += connection.recv(1 << 16)
    return head.split(b"\r\n", 1)[0]


class Loop:
    """An AsyncClient with the methods of a Client: each call runs in an event loop of a thread."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.client = AsyncClient(*args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(method(*args, **kwargs), self._loop).result()

        return call

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.client.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


CLIENTS: dict[str, Callable[..., Any]] = {"threads": Client, "asyncio": Loop}
