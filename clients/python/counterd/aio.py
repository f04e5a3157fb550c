"""The client for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from . import protocol
from .decisions import CounterdError, Decision, Features, OnFailure, UnavailableError, check_on_failure, decide_failure
from .protocol import EncodedHit, Hit, Operation, Result
from .streams import Streams, Token
from .sync import DEFAULT_MAX_WAITING, DEFAULT_TIMEOUT, check_max_waiting, check_timeout

T = TypeVar("T")


class _Pending:
    """A hit whose caller waits for the future."""

    def __init__(self, encoded: EncodedHit) -> None:
        self.encoded = encoded
        self.sent = False
        self.batch: _Batch | None = None
        self.decided: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()


class _Batch:
    """Hits that go together, in one exchange."""

    def __init__(self) -> None:
        self.hits: list[_Pending] = []
        self.callers = 0  # that wait
        self.exchange: asyncio.Task[list[Result]] | None = None


class _Coalescer:
    """Sends hits in the order of their calls.

    Hits that come while an exchange is under way go together with the next. An exchange that takes longer than the
    hold is late: the hits that wait go in an exchange of their own, and the late one goes on for its callers only.
    """

    def __init__(self, streams: Streams, hold: float) -> None:
        self._streams = streams
        self._hold = hold
        self.forget()

    def forget(self) -> None:
        self._queue: dict[_Pending, EncodedHit] = {}
        self._giving_back: set[asyncio.Task[None]] = set()
        self._current: _Batch | None = None  # what hits wait for; None: there is none, and none waits

    async def decide(self, pending: _Pending) -> Decision:
        self._queue[pending] = pending.encoded
        if self._current is None:
            self._begin()
        try:
            return await pending.decided
        except protocol.BatchRefusedError:
            pass
        except asyncio.CancelledError:
            self._leave(pending)
            raise
        return await _call(self._streams, protocol.hit(pending.encoded))

    def _leave(self, pending: _Pending) -> None:
        """Takes out a hit whose caller has left. An exchange ends early if all of its callers have left."""
        self._queue.pop(pending, None)
        batch = pending.batch
        if batch is not None:
            batch.callers -= 1
            if batch.callers == 0 and batch.exchange is not None:
                batch.exchange.cancel()
        decided = pending.decided
        if decided.done() and not decided.cancelled() and decided.exception() is None:  # just before it left
            self._give_back(decided.result())

    def _give_back(self, result: Result | BaseException) -> None:
        """Gives back, in the background, what a hit gets whose caller has left: a lease or a turn."""
        if isinstance(result, Decision) and result.reservation:
            task = asyncio.create_task(self._release(result.reservation))
            self._giving_back.add(task)  # the loop's own reference is weak
            task.add_done_callback(self._giving_back.discard)

    async def _release(self, reservation: str) -> None:
        with contextlib.suppress(CounterdError, TimeoutError):  # it ends by itself
            async with asyncio.timeout(protocol.GIVE_BACK_TIMEOUT):
                await _call(self._streams, protocol.settle(reservation, 0))

    def _begin(self) -> None:
        """Begins an exchange. Hits join it until the loop has come to it."""
        batch = self._current = _Batch()
        late = asyncio.get_running_loop().call_later(self._hold, self._next, batch)
        batch.exchange = asyncio.create_task(self._exchange(batch))
        batch.exchange.add_done_callback(functools.partial(self._end, batch, late))

    def _next(self, batch: _Batch) -> None:
        """Begins the next exchange if hits wait for this one, which has ended or is late."""
        if self._current is batch:
            self._current = None
            if self._queue:
                self._begin()

    async def _exchange(self, batch: _Batch) -> list[Result]:
        batch.hits = protocol.take(self._queue)
        batch.callers = len(batch.hits)
        for pending in batch.hits:
            pending.batch = batch
            pending.sent = True
        if not batch.hits:
            return []
        return await _call(self._streams, protocol.coalesced([pending.encoded for pending in batch.hits]))

    def _end(self, batch: _Batch, late: asyncio.TimerHandle, exchange: asyncio.Task[list[Result]]) -> None:
        """Hands on the results."""
        late.cancel()
        self._next(batch)
        if exchange.cancelled():
            fault: BaseException | None = UnavailableError("the exchange was canceled", maybe_counted=True)
        else:
            fault = exchange.exception()
        for n, pending in enumerate(batch.hits):
            result = exchange.result()[n] if fault is None else fault
            if pending.decided.done():  # by its caller, which has left
                self._give_back(result)
            elif isinstance(result, Decision):
                pending.decided.set_result(result)
            else:
                own = result.of_its_own() if isinstance(result, CounterdError) else result
                pending.decided.set_exception(own)


async def _call(streams: Streams, operation: Operation[T]) -> T:
    return operation.read(await streams.exchange(operation))


class AsyncClient:
    """A client of one counterd server, for asyncio: Client says what the arguments and the methods are. The token may
    also be a coroutine function. A call that is canceled ends at once; its hit may have been counted."""

    def __init__(
        self,
        url: str,
        *,
        token: Token = None,
        timeout: float = DEFAULT_TIMEOUT,
        on_failure: OnFailure = "error",
        coalesce: bool = True,
        max_waiting: int = DEFAULT_MAX_WAITING,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._streams = Streams(protocol.parse_url(url), token, tls)
        self._timeout = check_timeout(timeout)
        self._coalescer = _Coalescer(self._streams, protocol.hold(timeout))
        self._coalesce = coalesce
        self._on_failure = check_on_failure(on_failure)
        self._max_waiting = check_max_waiting(max_waiting)
        self._waiting = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the idle connections."""
        self._enter()
        await self._streams.close()

    async def hit(
        self,
        event: str,
        features: Features,
        cost: int = 1,
        *,
        timeout: float | None = None,
        on_failure: OnFailure | None = None,
    ) -> Decision:
        return await self._decide(Hit(event, features, cost), timeout, on_failure)

    async def reserve(
        self,
        event: str,
        features: Features,
        within: str,
        cost: int = 1,
        *,
        timeout: float | None = None,
        on_failure: OnFailure | None = None,
    ) -> Decision:
        return await self._decide(Hit(event, features, cost, reserve=within), timeout, on_failure)

    async def settle(self, reservation: str, cost: int, *, timeout: float | None = None) -> None:
        await self._call(protocol.settle(reservation, cost), timeout)

    async def release(self, reservation: str, *, timeout: float | None = None) -> None:
        await self.settle(reservation, 0, timeout=timeout)

    async def renew(self, reservation: str, by: str, *, timeout: float | None = None) -> str:
        return await self._call(protocol.renew(reservation, by), timeout)

    async def check(
        self,
        event: str,
        features: Features,
        cost: int = 1,
        *,
        timeout: float | None = None,
        on_failure: OnFailure | None = None,
    ) -> Decision:
        operation = protocol.check(event, features, cost)
        try:
            return await self._call(operation, timeout)
        except CounterdError as error:
            return decide_failure(event, error, on_failure or self._on_failure)

    async def batch(
        self, hits: Sequence[Hit], *, timeout: float | None = None, on_failure: OnFailure | None = None
    ) -> list[Result]:
        operation = protocol.batch([protocol.encode_hit(hit) for hit in hits])
        on_failure = on_failure or self._on_failure
        try:
            results = await self._call(operation, timeout)
        except CounterdError as error:
            return [decide_failure(hit.event, error, on_failure) for hit in hits]
        return protocol.decide_failures(hits, results, on_failure)

    async def increment(
        self,
        event: str,
        features: Features,
        by: int = 1,
        *,
        at: datetime.datetime | None = None,
        timeout: float | None = None,
    ) -> None:
        await self._call(protocol.increment(event, features, by, at), timeout)

    async def count(
        self,
        event: str,
        features: Features,
        window: str,
        *,
        at: datetime.datetime | None = None,
        timeout: float | None = None,
    ) -> int:
        return await self._call(protocol.count(event, features, window, at), timeout)

    def _enter(self) -> None:
        """Begins again in another event loop, such as that of a second asyncio.run."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._streams.forget()
            self._coalescer.forget()
            self._waiting = 0

    def _timeout_of(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else check_timeout(timeout)

    async def _call(self, operation: Operation[T], timeout: float | None) -> T:
        self._enter()
        timeout = self._timeout_of(timeout)
        try:
            async with asyncio.timeout(timeout):
                return await _call(self._streams, operation)
        except TimeoutError:
            raise protocol.no_answer(timeout, self._streams.address) from None

    async def _decide(self, hit: Hit, timeout: float | None, on_failure: OnFailure | None) -> Decision:
        self._enter()
        timeout = self._timeout_of(timeout)
        encoded = protocol.encode_hit(hit)
        try:
            return await self._hit(encoded, timeout)
        except CounterdError as error:
            return decide_failure(hit.event, error, on_failure or self._on_failure)

    async def _hit(self, encoded: EncodedHit, timeout: float) -> Decision:
        end = asyncio.get_running_loop().time() + timeout
        pending = _Pending(encoded)
        try:
            async with asyncio.timeout_at(end):
                if self._coalesce:
                    decision = await self._coalescer.decide(pending)
                else:
                    pending.sent = True
                    decision = await _call(self._streams, protocol.hit(encoded))
        except TimeoutError:
            error = protocol.no_answer(timeout, self._streams.address)
            error.maybe_counted = pending.sent
            raise error from None
        if decision.allowed and decision.wait > 0 and self._max_waiting > 0:
            await self._await_turn(decision, end)
        return decision

    async def _await_turn(self, decision: Decision, end: float) -> None:
        if decision.wait > end - asyncio.get_running_loop().time():
            raise await self._give_back(decision, f"the turn is in {decision.wait:g} s, later than the timeout")
        if self._waiting >= self._max_waiting:
            raise await self._give_back(decision, "too many hits wait for their turns")
        self._waiting += 1
        try:
            await asyncio.sleep(decision.wait)
        except asyncio.CancelledError:
            await self._give_back(decision, "")
            raise
        finally:
            self._waiting -= 1

    async def _give_back(self, decision: Decision, reason: str) -> UnavailableError:
        """Gives the turn back, and returns why the hit does not wait. A turn that has come by then is used."""
        maybe_counted = not decision.reservation
        if decision.reservation:
            try:
                await self.release(decision.reservation, timeout=protocol.GIVE_BACK_TIMEOUT)
            except CounterdError:
                maybe_counted = True
        return protocol.given_back(decision, reason, maybe_counted=maybe_counted)
