"""Exchanges over kept connections, for threads."""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from .decisions import InvalidError, RefusedError, UnavailableError
from .http1 import MAX_IDLE, READ_SIZE, ResponseReader, failed, write_request
from .protocol import Address, Answer, Operation, check_token, no_answer

_Selector: Any = getattr(selectors, "PollSelector", selectors.SelectSelector)  # poll takes no descriptor


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
    with _Selector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def _connect(address: Address, deadline: Deadline) -> socket.socket:
    """Connects to one of the host's addresses, all within the deadline."""
    fault = OSError("the name has no address")
    for family, kind, proto, _, place in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, proto)
        try:
            sock.settimeout(deadline.socket_timeout())
            sock.connect(place)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            sock.close()
            fault = error
        except BaseException:
            sock.close()
            raise
    raise fault


def _encrypt(sock: socket.socket, tls: ssl.SSLContext, host: str, deadline: Deadline) -> socket.socket:
    try:
        sock.settimeout(deadline.socket_timeout())
        return tls.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


def _exchange(sock: socket.socket, request: bytes, deadline: Deadline) -> tuple[Answer, bool]:
    """Returns the answer, and whether the connection may be kept. Neither takes longer if the bytes go slowly."""
    unsent = memoryview(request)
    try:
        while unsent:
            sock.settimeout(deadline.socket_timeout())
            unsent = unsent[sock.send(unsent) :]
    except (BrokenPipeError, ConnectionResetError):
        pass  # The server may have answered before it had read all, as to a body that is too long.
    reader = ResponseReader()
    while True:
        sock.settimeout(deadline.socket_timeout())
        if done := reader.feed(sock.recv(READ_SIZE)):
            answer, stays = done
            return answer, stays and not unsent


class Connections:
    """The connections to one server."""

    def __init__(self, address: Address, token: str | Callable[[], str] | None, tls: ssl.SSLContext | None) -> None:
        self.address = address
        if token is not None and not callable(token):
            check_token(token, InvalidError)
        self._token = token
        self._tls = (tls or ssl.create_default_context()) if address.tls else None
        self.reset()

    def reset(self) -> None:
        """Forgets the connections. A process that was forked does not share those of its parent."""
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []

    def close(self) -> None:
        """Closes the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for sock in idle:
            sock.close()

    def exchange(self, operation: Operation[Any], deadline: Deadline) -> Answer:
        """Makes one exchange, whatever the status of its answer."""
        request = write_request(self.address, operation, self._read_token())
        sock: socket.socket | None = None
        try:
            sock = self._acquire(deadline)
            answer, keep = _exchange(sock, request, deadline)
        except BaseException as error:
            if sock is not None:
                sock.close()
            if isinstance(error, UnavailableError):
                error.args = (f"{error}, from {self.address}",)
            if not isinstance(error, OSError):
                raise
            late = isinstance(error, TimeoutError) and deadline.left() == 0
            fault = failed(error, self.address, reached=sock is not None)
            if late:
                fault = no_answer(deadline.timeout, self.address)
                fault.maybe_counted = sock is not None
            raise fault from (None if late else error)
        self._release(sock, keep)
        return answer

    def _read_token(self) -> str | None:
        if not callable(self._token):
            return self._token
        try:
            token = self._token()
        except Exception as error:
            raise RefusedError("the token function failed") from error
        return check_token(token)

    def _acquire(self, deadline: Deadline) -> socket.socket:
        while True:
            with self._lock:
                sock = self._idle.pop() if self._idle else None
            if sock is None:
                sock = _connect(self.address, deadline)
                return sock if self._tls is None else _encrypt(sock, self._tls, self.address.host, deadline)
            if not is_stale(sock):
                return sock
            sock.close()

    def _release(self, sock: socket.socket, keep: bool) -> None:
        with self._lock:
            if keep and len(self._idle) < MAX_IDLE:
                self._idle.append(sock)
                return
        sock.close()


def after_fork(reset: Callable[[], None]) -> None:
    """Has a process that was forked call the function first."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)
