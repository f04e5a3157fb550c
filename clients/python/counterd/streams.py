"""Exchanges over kept connections, for asyncio: as much of HTTP/1.1 as a client of counterd needs."""

from __future__ import annotations

import asyncio
import http.client
import inspect
import io
import re
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from .connections import is_stale
from .decisions import RefusedError, UnavailableError
from .protocol import MAX_ANSWER, Address, Answer, Operation, check_token, read_answer, too_long

_MAX_IDLE = 64
_MAX_HEAD = 1 << 16
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n]*)?\r\n")
_BODILESS = (204, 304)


class MalformedError(Exception):
    """An answer is not HTTP."""


class _Reader(asyncio.StreamReader):
    """A reader that knows whether its connection can be kept."""

    unread = 0
    ended = False

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]
        self.unread += len(data)
        super().feed_data(data)

    def feed_eof(self) -> None:
        self.ended = True
        super().feed_eof()

    async def read(self, n: int = -1) -> bytes:
        return self._count(await super().read(n))

    async def readexactly(self, n: int) -> bytes:
        return self._count(await super().readexactly(n))

    async def readuntil(self, separator: bytes = b"\n") -> bytes:
        return self._count(await super().readuntil(separator))

    def _count(self, data: bytes) -> bytes:
        self.unread -= len(data)
        return data


class _Connection:
    def __init__(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def is_usable(self) -> bool:
        """Reports whether the server has kept the connection open, and has sent nothing that no request asked for."""
        ended = self.reader.ended or self.reader.unread > 0 or self.writer.is_closing()
        return not ended and not is_stale(self.writer.get_extra_info("socket"))

    def close(self) -> None:
        self.writer.transport.abort()


Token = str | Callable[[], str | Awaitable[str]] | None


class Streams:
    """The connections to one server, of one event loop."""

    def __init__(self, address: Address, token: Token, tls: ssl.SSLContext | None) -> None:
        self._address = address
        self._token = token
        self._tls = (tls or ssl.create_default_context()) if address.tls else None
        self._idle: list[_Connection] = []

    def forget(self) -> None:
        """Forgets the connections: those of another event loop cannot be closed."""
        self._idle = []

    async def close(self) -> None:
        """Closes the idle connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        await asyncio.sleep(0)  # so that transports of the loop do so

    async def exchange(self, operation: Operation[Any]) -> Answer:
        """Makes one exchange, whatever the status of its answer. It takes as long as the caller lets it."""
        head = await self._head(operation)
        sent = False
        connection: _Connection | None = None
        try:
            connection = await self._acquire()
            sent = True
            connection.writer.write(head + (operation.body or b""))
            await connection.writer.drain()
            answer, keep = await _read(connection.reader)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, (OSError, EOFError, MalformedError, asyncio.LimitOverrunError)):
                fault = UnavailableError(f"the exchange failed: {type(error).__name__}", maybe_counted=sent)
                raise fault from error
            raise
        if keep and len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    async def _head(self, operation: Operation[Any]) -> bytes:
        path = self._address.prefix + operation.path
        lines = [f"{operation.method} {path} HTTP/1.1", f"Host: {self._address.authority}", "Accept-Encoding: identity"]
        if operation.body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(operation.body)}"]
        if self._token is not None:
            lines.append(f"Authorization: Bearer {check_token(await self._read_token())}")
        return "\r\n".join([*lines, "", ""]).encode("ascii")

    async def _read_token(self) -> object:
        if not callable(self._token):
            return self._token
        try:
            token = self._token()
            return await token if inspect.isawaitable(token) else token
        except Exception as error:
            raise RefusedError("the token function failed") from error

    async def _acquire(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        loop = asyncio.get_running_loop()
        reader = _Reader(limit=_MAX_HEAD, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.create_connection(
            lambda: protocol, self._address.host, self._address.port, ssl=self._tls, happy_eyeballs_delay=0.25
        )
        return _Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def _read(reader: asyncio.StreamReader) -> tuple[Answer, bool]:
    """Reads an answer, and returns whether its connection can be kept."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        match = _STATUS.match(head)
        if match is None:
            raise MalformedError
        status = int(match[2])
        if status >= 200:
            break
        if status == 101:
            raise MalformedError
    try:
        headers = http.client.parse_headers(io.BytesIO(head[match.end() :]))
    except http.client.HTTPException:
        raise MalformedError from None
    lengths: list[str] = headers.get_all("Content-Length", [])
    coding = headers.get("Transfer-Encoding")
    keep = match[1] == b"1" and "close" not in headers.get("Connection", "").lower()
    if status in _BODILESS:
        text = b""
    elif coding is not None:
        if coding.strip().lower() != "chunked" or lengths:
            raise MalformedError
        text = await _read_chunks(reader)
    elif lengths:
        text = await _read_exactly(reader, lengths)
    else:
        keep = False
        text = await _read_all(reader)
    return read_answer(status, headers.get("Content-Type"), text, headers.get("X-Request-Id")), keep


async def _read_exactly(reader: asyncio.StreamReader, lengths: list[str]) -> bytes:
    if len(lengths) != 1 or not re.fullmatch(r"[0-9]{1,18}", lengths[0].strip()):
        raise MalformedError
    length = int(lengths[0])
    if length > MAX_ANSWER:
        raise too_long()
    return await reader.readexactly(length)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    text = bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        match = re.match(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;|\r\n)", line)
        if match is None:
            raise MalformedError
        size = int(match[1], 16)
        if len(text) + size > MAX_ANSWER:
            raise too_long()
        if size == 0:
            break
        text += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise MalformedError
    for _ in range(100):
        if await reader.readuntil(b"\r\n") == b"\r\n":  # behind the trailers
            return bytes(text)
    raise MalformedError


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    text = bytearray()
    while chunk := await reader.read(1 << 16):
        text += chunk
        if len(text) > MAX_ANSWER:
            raise too_long()
    return bytes(text)
