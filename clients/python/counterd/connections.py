"""Exchanges over kept connections, for threads. It is http.client with a bound for the whole exchange."""

from __future__ import annotations

import http.client
import io
import os
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from .decisions import RefusedError, UnavailableError
from .protocol import MAX_ANSWER, Address, Answer, Operation, check_token, no_answer, read_answer, too_long

_MAX_IDLE = 64


class Deadline:
    """The end of a call."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.end = time.monotonic() + timeout

    def left(self) -> float:
        """Returns how many seconds are left, at least 0."""
        return max(self.end - time.monotonic(), 0)

    def socket_timeout(self) -> float:
        """Returns how many seconds are left, or raises TimeoutError. To a socket 0 is another mode."""
        left = self.left()
        if left == 0:
            raise TimeoutError
        return left


def is_stale(sock: Any) -> bool:
    """Reports whether the server has closed an idle connection, or has sent what no request asked for."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


class _Reader(io.RawIOBase):
    """Reads from a connection until its deadline, however slowly the bytes come."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._socket = sock
        self._raw = sock.makefile("rb", buffering=0)  # keeps the socket open
        self._deadline = deadline
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self.ended:
            return None
        self._socket.settimeout(self._deadline.socket_timeout())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Buffer(io.BufferedReader):
    """The buffer of an answer. Once it is closed it knows whether more was behind the answer."""

    def __init__(self, reader: _Reader) -> None:
        super().__init__(reader)
        self._reader = reader
        self.more = False

    def close(self) -> None:
        if not self.closed:
            self._reader.ended = True
            self.more = bool(self.peek(1))
        super().close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, address: Address, context: ssl.SSLContext | None, deadline: Deadline) -> None:
        super().__init__(address.host, address.port)
        self.deadline = deadline
        self.buffer: _Buffer | None = None  # of the last answer
        self._context = context

    def connect(self) -> None:
        self.sock = self._connect_socket()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            self.sock.settimeout(self.deadline.socket_timeout())
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host)

    def _connect_socket(self) -> socket.socket:
        """Connects to one of the host's addresses, all within the deadline."""
        fault = OSError("the name has no address")
        for family, kind, proto, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, proto)
            try:
                sock.settimeout(self.deadline.socket_timeout())
                sock.connect(address)
                return sock
            except OSError as error:
                sock.close()
                fault = error
            except BaseException:
                sock.close()
                raise
        raise fault

    def response_class(  # type: ignore[override]
        self, _sock: socket.socket, **arguments: Any
    ) -> http.client.HTTPResponse:
        return http.client.HTTPResponse(self, **arguments)  # type: ignore[arg-type]

    def abandon(self) -> None:
        """Closes the connection, with what is left of an answer.

        http.client closes a connection before it has read the last answer.
        """
        self.close()
        if self.buffer is not None:
            self.buffer.close()

    def makefile(self, _mode: str) -> _Buffer:
        self.buffer = _Buffer(_Reader(self.sock, self.deadline))
        return self.buffer


class Connections:
    """The connections to one server."""

    def __init__(self, address: Address, token: str | Callable[[], str] | None, tls: ssl.SSLContext | None) -> None:
        self._address = address
        self._token = token
        self._tls = (tls or ssl.create_default_context()) if address.tls else None
        self.reset()

    def reset(self) -> None:
        """Forgets the connections. A process that was forked does not share those of its parent."""
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []

    def close(self) -> None:
        """Closes the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.abandon()

    def exchange(self, operation: Operation[Any], deadline: Deadline) -> Answer:
        """Makes one exchange, whatever the status of its answer."""
        headers = self._headers(operation)
        connection: _Connection | None = None
        sent = False
        try:
            connection = self._acquire(deadline)
            sent = True
            connection.sock.settimeout(deadline.socket_timeout())
            connection.request(operation.method, self._address.prefix + operation.path, operation.body, headers)
            answer = self._read(connection)
        except BaseException as error:
            if connection is not None:
                connection.abandon()
            if isinstance(error, TimeoutError) and deadline.left() == 0:
                fault = no_answer(deadline.timeout)
                fault.maybe_counted = sent
                raise fault from None
            if isinstance(error, (OSError, http.client.HTTPException)):
                # The text of some errors holds what the server has sent.
                fault = UnavailableError(f"the exchange failed: {type(error).__name__}", maybe_counted=sent)
                raise fault from error
            raise
        return answer

    def _headers(self, operation: Operation[Any]) -> dict[str, str]:
        headers = {}
        if operation.body is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            token: object = self._token
            if callable(token):
                try:
                    token = token()
                except Exception as error:
                    raise RefusedError("the token function failed") from error
            headers["Authorization"] = f"Bearer {check_token(token)}"
        return headers

    def _acquire(self, deadline: Deadline) -> _Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = _Connection(self._address, self._tls, deadline)
                connection.connect()
                return connection
            if not is_stale(connection.sock):
                connection.deadline = deadline
                return connection
            connection.abandon()

    def _read(self, connection: _Connection) -> Answer:
        response = connection.getresponse()
        text = bytearray()
        while chunk := response.read(1 << 16):
            text += chunk
            if len(text) > MAX_ANSWER:
                raise too_long()
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        media, request_id = response.getheader("Content-Type"), response.getheader("X-Request-Id")
        if response.will_close or connection.buffer is None or connection.buffer.more:
            connection.abandon()
        else:
            self._keep(connection)
        return read_answer(response.status, media, bytes(text), request_id)

    def _keep(self, connection: _Connection) -> None:
        with self._lock:
            if len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        connection.abandon()


def after_fork(reset: Callable[[], None]) -> None:
    """Has a process that was forked call the function first."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)
