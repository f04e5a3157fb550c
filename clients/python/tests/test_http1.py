"""Both clients against answers in every form of HTTP/1.1, and in none."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import unittest
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from counterd import CounterdError, UnavailableError, UnexpectedError, http1

from .support import CLIENTS, LONG, raw_server, read_request

USER = {"user": "42"}
LIMIT = {"name": "n", "feature": "", "window": "1m", "allowed": True, "limit": 5, "count": 1, "remaining": 4, "reset": 0}
DECISION = {"allowed": True, "event": "first", "at": "2026-11-21T04:52:30Z", "retry_after": 0, "limits": [LIMIT]}
BODY = json.dumps(DECISION).encode()
SIZE = b"%x" % len(BODY)


def answer(*fields: bytes, body: bytes = BODY, status: bytes = b"HTTP/1.1 200 OK", length: bool = True) -> bytes:
    lines = [status, b"Content-Type: application/json", *fields]
    if length:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])


def chunked(*fields: bytes, size: bytes = SIZE, after: bytes = b"\r\n", trailers: bytes = b"") -> bytes:
    body = size + b"\r\n" + BODY + after + b"0\r\n" + trailers + b"\r\n"
    return answer(b"Transfer-Encoding: chunked", *fields, body=body, length=False)


SECOND = answer(body=json.dumps({**DECISION, "event": "second"}).encode())
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"

KEPT, DROPPED = "kept", "dropped"  # by the client
ENDED, RESET = "ended", "reset"  # by the server
ANSWERS: dict[str, tuple[type[CounterdError] | None, str, bytes]] = {
    "a length": (None, KEPT, answer()),
    "no reason": (None, KEPT, answer(status=b"HTTP/1.1 200")),
    "fields in any case": (None, KEPT, answer(b"cONTENT-lENGTH:\t %d \t" % len(BODY), length=False)),
    "a media type with a parameter": (None, KEPT, answer().replace(b"ion/json", b"ion/JSON; charset=utf-8")),
    "one chunk": (None, KEPT, chunked()),
    "chunks of a byte": (None, KEPT, chunked(size=b"".join(b"1\r\n%c\r\n" % c for c in b" " * 99) + SIZE)),
    "a chunk with an extension": (None, KEPT, chunked(size=b"000" + SIZE.upper() + b' ;a="b"')),
    "trailers": (None, KEPT, chunked(trailers=b"X-A: b\r\nContent-Length: 5\r\n")),
    "an interim answer": (None, KEPT, b"HTTP/1.1 100 Continue\r\n\r\n" + answer()),
    "early hints": (None, KEPT, EARLY + answer()),
    "early hints, twice": (None, KEPT, EARLY + EARLY + chunked()),
    "no more requests": (None, DROPPED, answer(b"Connection: x, Close")),
    "HTTP/1.0": (None, DROPPED, answer(status=b"HTTP/1.0 200 OK")),
    "another answer behind it": (None, DROPPED, answer() + SECOND),
    "another answer behind chunks": (None, DROPPED, chunked() + SECOND),
    "a byte behind it": (None, DROPPED, answer() + b"\n"),
    "until the end": (None, ENDED, answer(length=False)),
    "no content": (UnexpectedError, KEPT, b"HTTP/1.1 204 No Content\r\n\r\n"),
    "not modified": (UnexpectedError, KEPT, answer(status=b"HTTP/1.1 304 Not Modified")[: -len(BODY)]),
    "an early answer alone": (UnavailableError, ENDED, EARLY),
    "two media types": (UnexpectedError, KEPT, answer(b"Content-Type: application/json")),
    "until a reset": (UnavailableError, RESET, answer(length=False)),
    "a length above 64 MiB": (UnexpectedError, DROPPED, answer(b"Content-Length: 67108865", length=False)),
    "a chunk above 64 MiB": (UnexpectedError, DROPPED, chunked(size=b"4000001")),
    "chunks above 64 MiB": (UnexpectedError, DROPPED, chunked(after=b"\r\n4000000\r\n")),
    "a body that breaks off": (UnavailableError, ENDED, answer()[:-1]),
    "chunks that break off": (UnavailableError, ENDED, chunked()[:-1]),
    "switched protocols": (UnavailableError, DROPPED, b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + answer()),
    "no HTTP": (UnavailableError, DROPPED, b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    "no HTTP/1": (UnavailableError, DROPPED, answer(status=b"HTTP/2.0 200 OK")),
    "no status": (UnavailableError, DROPPED, answer(status=b"HTTP/1.1 OK")),
    "a negative status": (UnavailableError, DROPPED, answer(status=b"HTTP/1.1 -200 OK")),
    "a status of four digits": (UnavailableError, DROPPED, answer(status=b"HTTP/1.1 2000 OK")),
    "a line before it": (UnavailableError, DROPPED, b"\r\n" + answer()),
    "lines without CR": (UnavailableError, ENDED, answer().replace(b"\r", b"")),
    "no field": (UnavailableError, DROPPED, answer(b"X")),
    "no field of an interim answer": (UnavailableError, DROPPED, b"HTTP/1.1 100 Continue\r\nX\r\n\r\n" + answer()),
    "no field's name": (UnavailableError, DROPPED, answer(b": x")),
    "a space before the colon": (UnavailableError, DROPPED, answer(b"X : x")),
    "a folded field": (UnavailableError, DROPPED, answer(b"X: x\r\n y: z")),
    "NUL in a field": (UnavailableError, DROPPED, answer(b"X: \0")),
    "LF in a field": (UnavailableError, DROPPED, answer(b"X: x\nContent-Length: 1")),
    "CR in a field": (UnavailableError, DROPPED, answer(b"X: x\rContent-Length: 1")),
    "a head above 64 KiB": (UnavailableError, DROPPED, answer(*[b"X: %s" % (b"x" * 1000)] * 66)),
    "a field above 64 KiB": (UnavailableError, DROPPED, answer(b"X: %s" % (b"x" * 66_000))),
    "a field without end": (UnavailableError, DROPPED, b"HTTP/1.1 200 OK\r\nX: %s" % (b"x" * 66_000)),
    "interim answers above 64 KiB": (UnavailableError, DROPPED, EARLY * 2000 + answer()),
    "two lengths": (UnavailableError, DROPPED, answer(b"Content-Length: 5")),
    "equal lengths": (UnavailableError, DROPPED, answer(b"Content-Length: %d" % len(BODY))),
    "a list of lengths": (UnavailableError, DROPPED, answer(b"Content-Length: %d, 5" % len(BODY), length=False)),
    "a length with a sign": (UnavailableError, DROPPED, answer(b"Content-Length: +%d" % len(BODY), length=False)),
    "a negative length": (UnavailableError, DROPPED, answer(b"Content-Length: -5", length=False)),
    "a length in other digits": (UnavailableError, DROPPED, answer(b"Content-Length: \xb2", length=False)),
    "a long length": (UnavailableError, DROPPED, answer(b"Content-Length: %d" % 10**18, length=False)),
    "no length": (UnavailableError, DROPPED, answer(b"Content-Length:", length=False)),
    "a length and chunks": (UnavailableError, DROPPED, chunked(b"Content-Length: 5")),
    "an unknown coding": (UnavailableError, DROPPED, chunked().replace(b"chunked", b"chunkedx")),
    "two codings": (UnavailableError, DROPPED, chunked(b"Transfer-Encoding: gzip")),
    "a list of codings": (UnavailableError, DROPPED, chunked().replace(b"chunked", b"gzip, chunked")),
    "a chunk of -1": (UnavailableError, DROPPED, chunked(size=b"-1")),
    "a chunk of -5": (UnavailableError, DROPPED, chunked(size=b"-5")),
    "a chunk of 0x": (UnavailableError, DROPPED, chunked(size=b"0x" + SIZE)),
    "a chunk with a sign": (UnavailableError, DROPPED, chunked(size=b"+" + SIZE)),
    "a chunk with an underscore": (UnavailableError, DROPPED, chunked(size=b"0_" + SIZE)),
    "a chunk after a space": (UnavailableError, DROPPED, chunked(size=b" " + SIZE)),
    "a chunk of a long size": (UnavailableError, DROPPED, chunked(size=SIZE.rjust(16, b"0"))),
    "a chunk without size": (UnavailableError, DROPPED, chunked(size=b"")),
    "LF in an extension": (UnavailableError, DROPPED, chunked(size=SIZE + b";\n")),
    "an extension above 64 KiB": (UnavailableError, DROPPED, chunked(size=SIZE + b";" + b"x" * 66_000)),
    "more in a chunk than its size": (UnavailableError, DROPPED, chunked(after=b" \r\n")),
    "a chunk without CRLF": (UnavailableError, DROPPED, chunked(after=b"  ")),
    "no trailer": (UnavailableError, DROPPED, chunked(trailers=b"X\r\n")),
    "trailers above 64 KiB": (UnavailableError, DROPPED, chunked(trailers=b"X: y\r\n" * 11_000)),
}

@contextlib.contextmanager
def scripted(answers: list[bytes], end: str = KEPT) -> Iterator[tuple[str, list[int]]]:
    """Answers requests in their order, on whatever connection. The list has the connection of each answer."""
    opened: list[socket.socket] = []
    used: list[int] = []

    def serve(connection: socket.socket) -> None:
        opened.append(connection)
        n = len(opened)
        while True:
            used.append(n)
            connection.sendall(answers[len(used) - 1])
            if end == RESET:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
            elif end == ENDED:
                connection.shutdown(socket.SHUT_WR)
            read_request(connection)

    with raw_server(serve) as url:
        yield url, used


class Battery:
    """The tests of both clients."""

    kind: ClassVar[str]

    def client(self, url: str, **settings: Any) -> Any:
        client = CLIENTS[self.kind](url, timeout=LONG, **settings)
        self.addCleanup(client.close)
        return client

    def outcome(self, hit: Callable[..., Any]) -> Any:
        """Returns the event of the decision, or the kind of the failure."""
        decision = hit("open", USER, on_failure="open")
        self.assertTrue(decision.allowed)
        if decision.failed is None:
            return decision.event
        self.assertTrue(decision.failed.maybe_counted)
        for part in ("no answer within", "first", "second", "Early"):
            self.assertNotIn(part, str(decision.failed))
        return type(decision.failed)

    def test_answers(self) -> None:
        for name, (kind, connection, text) in ANSWERS.items():
            with self.subTest(name), scripted([text, SECOND], connection) as (url, used):
                client = self.client(url)
                self.assertEqual(self.outcome(client.hit), kind or "first")
                self.assertEqual(self.outcome(client.hit), "second")
                self.assertEqual(used, [1, 1 if connection == KEPT else 2])


class TestThreads(Battery, unittest.TestCase):
    kind = "threads"


class TestAsyncio(Battery, unittest.TestCase):
    kind = "asyncio"


class TestReader(unittest.TestCase):
    def read(self, text: bytes, size: int) -> Any:
        """Reads an answer whose bytes come so many at a time, until the end of the connection."""
        reader = http1.ResponseReader()
        pieces = (text[i : i + size] for i in range(0, len(text), size))
        try:
            return next(done for piece in (*pieces, b"") if (done := reader.feed(piece)))
        except CounterdError as error:
            return type(error), False

    def test_it_does_not_matter_how_the_bytes_come(self) -> None:
        for name, (_, connection, text) in ANSWERS.items():
            with self.subTest(name):
                whole, keep = self.read(text, len(text))
                self.assertEqual(keep, connection == KEPT)
                for size in (1, 1000):
                    self.assertEqual(self.read(text, size)[0], whole)

    def test_answers_that_break_off_anywhere(self) -> None:
        for text in (answer(), chunked(trailers=b"X: y\r\n"), EARLY + chunked(size=SIZE + b";x")):
            for n in range(len(text)):
                self.assertIs(self.read(text[:n], len(text))[0], UnavailableError, text[:n])


if __name__ == "__main__":
    unittest.main()
