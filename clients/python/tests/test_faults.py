"""Both clients against servers, networks and proxies at fault."""

from __future__ import annotations

import json
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any, ClassVar
from unittest import mock

import counterd
from counterd import CounterdError, Hit, http1
from counterd.connections import is_stale

from .support import CLIENTS, LONG, Counterd, Relay, raw_server, read_request

USER = {"user": "42"}
DECISION = {"allowed": True, "event": "api", "at": "2026-11-21T04:52:30Z", "retry_after": 0, "limits": []}
HTML = b"<html>Bad gateway</html>"
MAX_ANSWER = 1 << 20  # of these tests
MORE_THAN_FITS = 3 << 20


def answer(status: int, media: str, body: bytes, *fields: str) -> bytes:
    head = [f"HTTP/1.1 {status} Any", f"Content-Type: {media}", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(head).encode() + body


def as_json(status: int, body: Any) -> bytes:
    media = "application/json" if status == 200 else "application/problem+json"
    return answer(status, media, json.dumps(body).encode())


def without_end(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    for _ in range(MORE_THAN_FITS >> 20):
        connection.sendall(b"x" * (1 << 20))


def dripping(text: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        for byte in text:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    return serve


Serve = bytes | Callable[[socket.socket], None]

UNAVAILABLE: dict[str, Serve] = {
    "a proxy's 502": answer(502, "text/html", HTML),
    "a closed connection": b"",
}
UNEXPECTED: dict[str, Serve] = {
    "a page in place of JSON": answer(200, "text/html", HTML),
    "UTF-16": answer(200, "application/json", json.dumps(DECISION).encode("utf-16")),
    "no UTF-8": answer(200, "application/json", json.dumps(DECISION).replace("api", "\xe9").encode("latin-1")),
    "deep JSON": answer(200, "application/json", b"[" * 100_000),
    "a redirect": answer(302, "text/html", b"", "Location: /elsewhere"),
    "an answer without end": without_end,
}
SLOW: dict[str, Serve] = {
    "no answer": lambda _: threading.Event().wait(20) and None,
    "half an answer": lambda c: (c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"), threading.Event().wait(20)) and None,
    "a head that drips": dripping(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000),
    "a body that drips": dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + b"x" * 9999),
}


class Battery:
    """The tests of both clients."""

    kind: ClassVar[str]

    def has_parted(self, client: Any) -> bool:
        """Reports whether what the server has sent since the last answer has reached the client's only connection."""
        raise NotImplementedError

    def client(self, url: str, **settings: Any) -> Any:
        settings.setdefault("timeout", LONG)
        client = CLIENTS[self.kind](url, **settings)
        self.addCleanup(client.close)
        return client

    def fails(self, serve: Serve, kind: type[CounterdError], timeout: float = LONG) -> None:
        lines = []

        def serve_once(connection: socket.socket) -> None:
            lines.append(1)
            if isinstance(serve, bytes):
                connection.sendall(serve)
                connection.shutdown(socket.SHUT_RDWR)
                connection.close()
            else:
                serve(connection)

        with raw_server(serve_once) as url:
            client = self.client(url, timeout=timeout)
            with self.assertRaises(kind) as caught:
                client.hit("api", USER)
            self.assertTrue(caught.exception.maybe_counted)
            self.assertEqual(len(lines), 1)  # it is sent once
            for on_failure in ("open", "closed"):
                settings = {"on_failure": on_failure, "timeout": timeout if timeout == LONG else 0.1}
                decisions = [
                    client.hit("api", USER, **settings),
                    client.check("api", USER, **settings),
                    *client.batch([Hit("api", USER), Hit("api", USER)], **settings),
                ]
                for decision in decisions:
                    self.assertEqual((decision.allowed, decision.event), (on_failure == "open", "api"))
                    self.assertIsInstance(decision.failed, (counterd.UnavailableError, counterd.UnexpectedError))

    def test_an_answer_before_the_request_is_read(self) -> None:
        refusal = answer(413, "application/problem+json", b'{"title":"too long","status":413}', "Connection: close")

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1)
                connection.sendall(refusal)

        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=refuse)
            thread.start()
            with self.assertRaises(counterd.InvalidError) as caught:
                client = self.client(f"http://127.0.0.1:{listener.getsockname()[1]}")
                client.hit("api", {"user": "x" * 6_000_000}, on_failure="open")
            thread.join()
        self.assertFalse(caught.exception.maybe_counted)

    def test_unavailable(self) -> None:
        for name, serve in UNAVAILABLE.items():
            with self.subTest(name):
                self.fails(serve, counterd.UnavailableError)

    def test_unexpected(self) -> None:
        self.enterContext(mock.patch.object(http1, "MAX_ANSWER", MAX_ANSWER))
        for name, serve in UNEXPECTED.items():
            with self.subTest(name):
                self.fails(serve, counterd.UnexpectedError)

    def test_slow(self) -> None:
        for name, serve in SLOW.items():
            with self.subTest(name):
                self.fails(serve, counterd.UnavailableError, timeout=1)

    def test_no_server(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        client = self.client(f"http://127.0.0.1:{port}")
        with self.assertRaises(counterd.UnavailableError) as caught:
            client.hit("api", USER)
        self.assertFalse(caught.exception.maybe_counted)
        self.assertTrue(client.hit("api", USER, on_failure="open").allowed)

    def test_a_rule_that_refuses_outranks_on_failure(self) -> None:
        with Counterd("-memcached", "127.0.0.1:1") as server:
            client = self.client(server.url)
            with self.assertRaises(counterd.UnavailableError) as caught:
                client.hit("strict", USER)
            self.assertEqual((caught.exception.status, caught.exception.decision.allowed), (503, False))
            for on_failure in ("open", "closed"):
                single = client.hit("strict", USER, on_failure=on_failure)
                for decision in [single, *client.batch([Hit("strict", USER)], on_failure=on_failure)]:
                    self.assertEqual((decision.allowed, decision.failed.status), (False, 503))
                    self.assertEqual(decision.limits[0].on_error, "deny")
            self.assertEqual(client.hit("api", USER).limits[0].on_error, "allow")

    def test_tokens(self) -> None:
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        good = "kX2vN7qTf0ZrLw9sYb4hDg"
        (folder / "tokens").write_text(f"edge decide {good}\n")
        (folder / "tokens").chmod(0o600)
        (folder / "rules.yaml").write_text("events: {api: {limits: [{per: user, rate: 100/h}]}}")

        def fault() -> str:
            raise OSError("the vault is closed")

        with Counterd("-tokens", str(folder / "tokens"), rules=folder / "rules.yaml") as server:
            for token in (good, lambda: good):
                self.assertTrue(self.client(server.url, token=token).hit("api", USER).allowed)
            for token in (None, "secret-token-that-is-unknown", lambda: "secret-token\r\nX-Injected: 1", fault):
                with self.assertRaises(counterd.RefusedError) as caught:
                    self.client(server.url, token=token, on_failure="open").hit("api", USER)
                self.assertNotIn("secret-token", str(caught.exception))
            with self.assertRaises(counterd.RefusedError):
                self.client(server.url, token=good).increment("api", USER)

    def test_the_server_may_restart_between_calls(self) -> None:
        with Counterd() as server:
            client = self.client(server.url)
            client.hit("api", USER)
            address = server.address
        with Counterd(listen=address):
            self.assertEqual(client.hit("api", USER).limits[0].count, 1)

    def test_connections_are_kept_and_not_used_if_the_server_has_closed_them(self) -> None:
        opened: list[int] = []
        answered, parted = threading.Semaphore(0), threading.Semaphore(0)

        def serve(connection: socket.socket) -> None:
            opened.append(1)
            connection.sendall(as_json(200, DECISION))
            read_request(connection)
            goodbye = [answer(408, "text/plain", b"too late"), b"", as_json(200, DECISION), b""]  # some proxies say so
            connection.sendall(as_json(200, DECISION))
            answered.acquire()
            connection.sendall(goodbye[len(opened) - 1])
            if len(opened) != 3:
                connection.shutdown(socket.SHUT_WR)
            parted.release()

        with raw_server(serve) as url:
            client = self.client(url)
            for n in (1, 2, 3, 4):
                for _ in range(2):
                    self.assertTrue(client.hit("api", USER).allowed)
                    self.assertEqual(len(opened), n)
                answered.release()
                parted.acquire()
                end = time.monotonic() + LONG
                while not self.has_parted(client):
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.001)

    def test_the_server_may_be_below_a_path(self) -> None:
        with Counterd() as server, Relay(server.url) as relay:
            for suffix in ("/prefix", "/prefix/"):
                with self.assertRaises(counterd.UnknownEventError):
                    self.client(relay.url + suffix).hit("api", USER)
                self.assertEqual(relay.seen[-1][0], "/prefix/v1/events/api/hit")

    def test_tls(self) -> None:
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        cert, key = folder / "cert.pem", folder / "key.pem"
        command = "openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
        subprocess.run([*command.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
        with Counterd("-tls-cert", str(cert), "-tls-key", str(key), "-tokens", "none") as server:
            url = f"https://localhost:{server.address.rpartition(':')[2]}"
            trusting = ssl.create_default_context(cafile=str(cert))
            trusting.keylog_filename = str(folder / "keys")  # has what each connection begins with
            client = self.client(url, tls=trusting)
            for _ in range(3):
                self.assertTrue(client.hit("api", USER).allowed)
            self.assertEqual((folder / "keys").read_text().count("CLIENT_TRAFFIC_SECRET_0"), 1)
            for untrusted, tls in ((url, None), (url.replace("localhost", "127.0.0.1"), trusting)):
                with self.assertRaises(counterd.UnavailableError) as caught:
                    self.client(untrusted, tls=tls).hit("api", USER)
                self.assertFalse(caught.exception.maybe_counted)


class TestThreads(Battery, unittest.TestCase):
    kind = "threads"

    def has_parted(self, client: Any) -> bool:
        return is_stale(client._connections._idle[0])


class TestAsyncio(Battery, unittest.TestCase):
    kind = "asyncio"

    def has_parted(self, client: Any) -> bool:
        return client.client._streams._idle[0].transport.is_closing()  # its event loop has read what came


if __name__ == "__main__":
    unittest.main()
