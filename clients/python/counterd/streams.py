"""Exchanges over kept connections, for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from .connections import is_stale
from .decisions import InvalidError, RefusedError, UnavailableError
from .http1 import MAX_IDLE, ResponseReader, failed, write_request
from .protocol import Address, Answer, Operation, check_token


class _Connection(asyncio.Protocol):
    """A connection, and the exchange that is under way on it."""

    transport: Any
    _reader: ResponseReader
    _answer: asyncio.Future[tuple[Answer, bool]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():  # no request asked for it
            self.transport.abort()
            return
        try:
            if done := self._reader.feed(data):
                self._answer.set_result(done)
        except Exception as error:
            self._answer.set_exception(error)

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None and self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        else:
            self.data_received(b"")

    async def exchange(self, request: bytes) -> tuple[Answer, bool]:
        """Returns the answer, and whether the connection may be kept."""
        self._reader = ResponseReader()
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer

    def is_usable(self) -> bool:
        """Reports whether the server has kept the connection open, and has sent nothing that no request asked for."""
        return not self.transport.is_closing() and not is_stale(self.transport.get_extra_info("socket"))


Token = str | Callable[[], str | Awaitable[str]] | None


class Streams:
    """The connections to one server, of one event loop."""

    def __init__(self, address: Address, token: Token, tls: ssl.SSLContext | None) -> None:
        self.address = address
        if token is not None and not callable(token):
            check_token(token, InvalidError)
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
            connection.transport.abort()
        await asyncio.sleep(0)  # so that transports of the loop do so

    async def exchange(self, operation: Operation[Any]) -> Answer:
        """Makes one exchange, whatever the status of its answer. It takes as long as the caller lets it."""
        request = write_request(self.address, operation, await self._read_token())
        connection: _Connection | None = None
        try:
            connection = await self._acquire()
            answer, keep = await connection.exchange(request)
        except BaseException as error:
            if connection is not None:
                connection.transport.abort()
            if isinstance(error, UnavailableError):
                error.args = (f"{error}, from {self.address}",)
            if not isinstance(error, OSError):
                raise
            raise failed(error, self.address, reached=connection is not None) from error
        if keep and len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.transport.abort()
        return answer

    async def _read_token(self) -> str | None:
        if not callable(self._token):
            return self._token
        try:
            token = self._token()
            if inspect.isawaitable(token):
                token = await token
        except Exception as error:
            raise RefusedError("the token function failed") from error
        return check_token(token)

    async def _acquire(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.transport.abort()
        _, connection = await asyncio.get_running_loop().create_connection(
            _Connection, self.address.host, self.address.port, ssl=self._tls, happy_eyeballs_delay=0.25
        )
        if connection.transport.is_closing():
            raise ConnectionResetError
        return connection
