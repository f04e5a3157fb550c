"""HTTP/1.1, as much of it as a client of counterd needs. Nothing here does I/O."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from .decisions import UnavailableError, UnexpectedError
from .protocol import Address, Answer, Operation, read_answer

T = TypeVar("T")
_Reading: TypeAlias = Generator[None, bytes, T]
"""Reads a part of a response. It is sent what the connection brings, b"" at its end."""

MAX_IDLE = 64
"""How many connections a client keeps between exchanges."""
READ_SIZE = 1 << 16
MAX_ANSWER = 64 << 20
"""64 KiB for each hit of the largest batch."""
_MAX_HEAD = 1 << 16
"""Of the head with the interim responses before it and the trailers after it."""

_TEXT = rb"[\t -~\x80-\xff]*"
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: %s)?" % _TEXT)
_FIELD = re.compile(rb"([!#$%%&'*+.^_`|~0-9A-Za-z-]+):(%s)" % _TEXT)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;%s)?" % _TEXT)
_BODILESS = (204, 304)


def write_request(address: Address, operation: Operation[Any], token: str | None) -> bytes:
    path = address.prefix + operation.path
    lines = [f"{operation.method} {path} HTTP/1.1", f"Host: {address.authority}", "Accept-Encoding: identity"]
    if operation.body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(operation.body)}"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (operation.body or b"")


def failed(error: OSError, address: Address, *, reached: bool) -> UnavailableError:
    text = f"the exchange with {address} failed" if reached else f"cannot reach {address}"
    return UnavailableError(f"{text}: {error.strerror or type(error).__name__}", maybe_counted=reached)


class ResponseReader:
    """Reads one response. What RFC 9112 does not allow, or leaves to the reader's leniency, is an error."""

    def __init__(self) -> None:
        self._unread = bytearray()
        self._text = bytearray()
        self._head_left = _MAX_HEAD
        self._reading = self._read()
        next(self._reading)

    def feed(self, data: bytes) -> tuple[Answer, bool] | None:
        """Takes the next bytes of the connection, or b"" at its end.

        Once the response is complete, it returns the answer, and whether the connection may be kept.
        """
        try:
            self._reading.send(data)
        except StopIteration as end:
            answer: tuple[Answer, bool] = end.value
            return answer
        return None

    def _read(self) -> _Reading[tuple[Answer, bool]]:
        while True:
            first, *lines = (yield from self._read_head(b"\r\n\r\n")).split(b"\r\n")
            match, fields = _STATUS.fullmatch(first), _read_fields(lines)
            if match is None or match[2] == b"101":
                raise _malformed()
            status = int(match[2])
            if status >= 200:
                break
        keep = match[1] == b"1" and "close" not in fields.get("connection", "").lower()
        coding, length = fields.get("transfer-encoding"), fields.get("content-length")
        if status in _BODILESS:
            pass
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise _malformed()
            yield from self._read_chunks()
        elif length is not None:
            if not re.fullmatch(r"[0-9]{1,18}", length):
                raise _malformed()
            yield from self._read_text(int(length))
        else:
            keep = False
            yield from self._read_all()
        answer = read_answer(status, fields.get("content-type"), self._text, fields.get("x-request-id"))
        return answer, keep and not self._unread

    def _read_chunks(self) -> _Reading[None]:
        while True:
            match = _CHUNK.fullmatch((yield from self._read_until(b"\r\n", _MAX_HEAD)))
            if match is None:
                raise _malformed()
            size = int(match[1], 16)
            if size == 0:
                break
            yield from self._read_text(size)
            yield from self._read_until(b"\r\n", 0)
        while trailer := (yield from self._read_head(b"\r\n")):
            _read_fields([trailer])

    def _read_text(self, size: int) -> _Reading[None]:
        end = len(self._text) + size
        if end > MAX_ANSWER:
            raise UnexpectedError(f"the answer is longer than {MAX_ANSWER} bytes", maybe_counted=True)
        while True:
            piece = self._unread[: end - len(self._text)]
            self._text += piece
            del self._unread[: len(piece)]
            if len(self._text) == end:
                return
            yield from self._receive()

    def _read_all(self) -> _Reading[None]:
        while True:
            yield from self._read_text(len(self._unread))
            data = yield
            if not data:
                return
            self._unread += data

    def _read_head(self, mark: bytes) -> _Reading[bytes]:
        part = yield from self._read_until(mark, self._head_left)
        self._head_left -= len(part) + len(mark)
        return part

    def _read_until(self, mark: bytes, most: int) -> _Reading[bytes]:
        """Reads up to a mark, of which there are at most so many bytes, and past it."""
        start = 0
        while (end := self._unread.find(mark, start)) < 0 and len(self._unread) < most + len(mark):
            start = max(len(self._unread) - len(mark) + 1, 0)
            yield from self._receive()
        if not 0 <= end <= most:
            raise _malformed()
        part = bytes(self._unread[:end])
        del self._unread[: end + len(mark)]
        return part

    def _receive(self) -> _Reading[None]:
        data = yield
        if not data:
            raise UnavailableError("the answer breaks off", maybe_counted=True)
        self._unread += data


def _read_fields(lines: list[bytes]) -> dict[str, str]:
    """Returns the values by lower-case name. Repeated fields are one, as a list."""
    fields: dict[str, str] = {}
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None:
            raise _malformed()
        name, value = match[1].decode("ascii").lower(), match[2].decode("latin-1").strip(" \t")
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


def _malformed() -> UnavailableError:
    return UnavailableError("the answer is not HTTP/1.1", maybe_counted=True)
