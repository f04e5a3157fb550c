"""Middleware for WSGI and ASGI: each request is a hit."""

from __future__ import annotations

import asyncio
import hashlib
import http
import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias

from .aio import AsyncClient
from .decisions import (
    CounterdError,
    Decision,
    Features,
    InvalidError,
    OnFailure,
    check_on_failure,
    decide_without,
)
from .headers import rate_limit_headers, seconds, unanswered
from .protocol import QUOTA_EXCEEDED, check_event
from .sync import Client

DECISION = "counterd.decision"
"""Where the environ of WSGI and the scope of ASGI have the decision."""


def _answer(decision: Decision) -> tuple[int, bytes]:
    """Returns the status and the problem document for a denied request."""
    if decision.failed is not None:
        detail = "The rate limiter did not decide. The request was not served."
        problem = {"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": detail}
        return 503, json.dumps(problem).encode()
    names = [
        limit.name
        for limit in decision.limits
        if not limit.allowed and not limit.shadow and (not unanswered(limit) or limit.reset is None)
    ]
    fits = "it never fits"
    if decision.retry_after is not None:
        fits = f"it fits in {decision.retry_after} seconds, if nothing else comes"
    if decision.may_fit_after:
        unit = "second" if decision.may_fit_after == 1 else "seconds"
        fits += f". It may fit in {decision.may_fit_after} {unit}, as reservations or leases are given back"
    problem = {
        "type": QUOTA_EXCEEDED,
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "detail": f"Denied by {', '.join(names)}: {fits}.",
        "violated-policies": names,
        "retry_after": decision.retry_after,
    }
    if decision.may_fit_after:
        problem["may_fit_after"] = decision.may_fit_after
    return 429, json.dumps(problem).encode()


_MAX_VALUE = 1024
"""Bytes of a feature's value that the server takes."""


def _prepare(features: Features) -> tuple[Features, bool]:
    """Returns the features of a request that it has, and whether it has no address.

    A client chooses values, and must not end the decision by one: an empty value is absent, and a value that is too
    long, or no text, is counted by its hash.
    """
    if not isinstance(features, Mapping):
        return features, False  # the client raises
    prepared = {}
    for kind, value in features.items():
        if isinstance(value, str):
            data = value.encode(errors="surrogatepass")
            if kind != "ip" and (len(data) > _MAX_VALUE or data.decode(errors="replace") != value):
                value = "sha256:" + hashlib.sha256(data).hexdigest()
            elif not value or kind == "ip" and (not value.strip() or value.startswith(("unix:", "@"))):
                value = None
        prepared[kind] = value
    return prepared, "ip" in prepared and prepared["ip"] is None


def _decide_absent(event: str, error: InvalidError, on_failure: OnFailure) -> Decision:
    """Decides a request without an address by on_failure if no limit is per its other features."""
    if [fault.pointer for fault in error.faults] != ["/features"]:
        raise error
    return decide_without(event, error, on_failure)


_MAX_LEASE = 30 * 86400


def _pause(length: int) -> float:
    """Returns for how many seconds leases of that length are not renewed: at least one, whatever a server says."""
    return max(length / 3, 1)


def _lease_of(decision: Decision) -> int | None:
    """Returns the length, in seconds, of the shortest lease that an admitted hit has taken."""
    lengths = [seconds(limit.window) or 1 for limit in decision.limits if limit.algorithm == "concurrency"]
    return min(*lengths, _MAX_LEASE) if decision.allowed and decision.reservation and lengths else None


Environ: TypeAlias = dict[str, Any]
StartResponse: TypeAlias = Callable[..., Callable[[bytes], object]]
WSGIApp: TypeAlias = Callable[[Environ, StartResponse], Iterable[bytes]]


class _Lease:
    """The leases of a request, renewed by a thread until they are released."""

    def __init__(self, client: Client, decision: Decision, cost: int, length: int) -> None:
        self._client, self._cost, self._length = client, cost, length
        self._reservation = decision.reservation
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="counterd-lease", daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        while not self._ended.wait(_pause(self._length)):
            try:
                self._reservation = self._client.renew(self._reservation, f"{self._length}s")
            except CounterdError:
                pass  # the next one tries again; a lease that has ended is free

    def release(self) -> None:
        self._ended.set()
        self._thread.join()
        try:
            self._client.settle(self._reservation, self._cost)
        except CounterdError:
            pass  # it ends by itself


class _Body:
    """A response body that releases the leases when the server closes it."""

    def __init__(self, body: Iterable[bytes], lease: _Lease) -> None:
        self._body, self._lease = body, lease

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        try:
            if hasattr(self._body, "close"):
                self._body.close()
        finally:
            self._lease.release()


class WSGIMiddleware:
    """Has each request of a WSGI application be a hit.

    event is its name, or a function of the environ that returns it; None: the request is not limited. features and
    cost are functions of the environ. Responses have RateLimit-Policy and RateLimit. A denied request is answered with
    429 and a problem document, or with 503 if it is denied by a failure; errors of the client are raised. Values that
    are empty are left out, and values of more than 1,024 bytes counted by their SHA-256. If no limit applies to a
    request since its ip is absent, on_failure decides. Leases are renewed until the server closes the response's body,
    and released then. environ["counterd.decision"] is the decision.
    """

    def __init__(
        self,
        app: WSGIApp,
        client: Client,
        event: str | Callable[[Environ], str | None],
        features: Callable[[Environ], Features],
        *,
        cost: Callable[[Environ], int] = lambda _: 1,
        on_failure: OnFailure | None = None,
    ) -> None:
        self._app, self._client, self._features, self._cost = app, client, features, cost
        self._event = event if callable(event) else check_event(event)
        self._on_failure = None if on_failure is None else check_on_failure(on_failure)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        event = self._event(environ) if callable(self._event) else self._event
        if event is None:
            return self._app(environ, start_response)
        cost = self._cost(environ)
        features, without_address = _prepare(self._features(environ))
        try:
            decision = self._client.hit(event, features, cost, on_failure=self._on_failure)
        except InvalidError as error:
            if not without_address:
                raise
            decision = _decide_absent(event, error, self._on_failure or self._client._on_failure)
        environ[DECISION] = decision
        headers = rate_limit_headers(decision)
        if not decision.allowed:
            code, body = _answer(decision)
            media = ("Content-Type", "application/problem+json")
            fields = [*headers.items(), media, ("Content-Length", str(len(body)))]
            start_response(f"{code} {http.HTTPStatus(code).phrase}", fields)
            return [body]

        def start(status: str, fields: list[tuple[str, str]], *rest: Any) -> Callable[[bytes], object]:
            names = {name.lower() for name in headers}
            kept = [field for field in fields if field[0].lower() not in names]
            return start_response(status, [*kept, *headers.items()], *rest)

        length = _lease_of(decision)
        if length is None:
            return self._app(environ, start)
        lease = _Lease(self._client, decision, cost, length)
        try:
            return _Body(self._app(environ, start), lease)
        except BaseException:
            lease.release()
            raise


Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class ASGIMiddleware:
    """Has each HTTP request of an ASGI application be a hit: as WSGIMiddleware, with functions of the scope. Leases are
    released when the application returns. Other connections are not limited."""

    def __init__(
        self,
        app: ASGIApp,
        client: AsyncClient,
        event: str | Callable[[Scope], str | None],
        features: Callable[[Scope], Features],
        *,
        cost: Callable[[Scope], int] = lambda _: 1,
        on_failure: OnFailure | None = None,
    ) -> None:
        self._app, self._client, self._features, self._cost = app, client, features, cost
        self._event = event if callable(event) else check_event(event)
        self._on_failure = None if on_failure is None else check_on_failure(on_failure)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        event = None
        if scope["type"] == "http":
            event = self._event(scope) if callable(self._event) else self._event
        if event is None:
            await self._app(scope, receive, send)
            return
        cost = self._cost(scope)
        features, without_address = _prepare(self._features(scope))
        try:
            decision = await self._client.hit(event, features, cost, on_failure=self._on_failure)
        except InvalidError as error:
            if not without_address:
                raise
            decision = _decide_absent(event, error, self._on_failure or self._client._on_failure)
        scope[DECISION] = decision
        headers = [(name.lower().encode(), value.encode()) for name, value in rate_limit_headers(decision).items()]
        if not decision.allowed:
            code, body = _answer(decision)
            fields = [*headers, (b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": code, "headers": fields})
            await send({"type": "http.response.body", "body": body})
            return

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in headers}
                kept = [field for field in message.get("headers", ()) if bytes(field[0]).lower() not in names]
                message = {**message, "headers": [*kept, *headers]}
            await send(message)

        length = _lease_of(decision)
        if length is None:
            await self._app(scope, receive, send_with)
            return
        renewed = [decision.reservation]
        renewal = asyncio.create_task(self._renew(renewed, length))
        try:
            await self._app(scope, receive, send_with)
        finally:
            renewal.cancel()
            await asyncio.wait([renewal])
            try:
                await self._client.settle(renewed[0], cost)
            except CounterdError:
                pass  # it ends by itself

    async def _renew(self, renewed: list[str], length: int) -> None:
        while True:
            await asyncio.sleep(_pause(length))
            try:
                renewed[0] = await self._client.renew(renewed[0], f"{length}s")
            except CounterdError:
                pass  # the next one tries again; a lease that has ended is free
