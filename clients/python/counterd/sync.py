"""The client for threads."""

from __future__ import annotations

import datetime
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

from . import protocol
from .connections import Connections, Deadline, after_fork
from .decisions import (
    CounterdError,
    Decision,
    Features,
    InvalidError,
    OnFailure,
    UnavailableError,
    check_on_failure,
    decide_failure,
)
from .protocol import EncodedHit, Hit, Operation, Result

T = TypeVar("T")

DEFAULT_TIMEOUT = 10.0
DEFAULT_MAX_WAITING = 10_000


class _Pending:
    """A hit whose caller waits."""

    def __init__(self, encoded: EncodedHit, deadline: Deadline) -> None:
        self.encoded = encoded
        self.deadline = deadline
        self.woken = threading.Event()
        self.batch: _Batch | None = None  # what its caller has to send
        self.outcome: Result | None = None
        self.gone = False


class _Batch:
    """Hits that go together, in one exchange."""

    def __init__(self, hits: list[_Pending]) -> None:
        self.hits = hits
        self.began = time.monotonic()
        self.sent = False


class _Coalescer:
    """Sends hits in the order of their calls.

    Hits that come while an exchange is under way go together with the next. A hit that finds none under way goes at
    once, alone. An exchange that takes longer than the hold is late: the hits that wait go in an exchange of their
    own, and the late one goes on for its callers only. There is no thread of its own: of each batch the caller
    with the latest deadline sends it, so that no caller is kept beyond its own deadline, and none is cut short by
    another's.
    """

    def __init__(self, connections: Connections, hold: float) -> None:
        self._connections = connections
        self._hold = hold
        self.reset()

    def reset(self) -> None:
        self._lock = threading.Lock()
        self._queue: dict[_Pending, EncodedHit] = {}
        self._current: _Batch | None = None  # what hits wait for; None: there is none, and none waits

    def decide(self, encoded: EncodedHit, deadline: Deadline) -> Decision:
        pending = _Pending(encoded, deadline)
        try:
            with self._lock:
                self._queue[pending] = encoded
            self._wait(pending)
            if pending.batch is not None and pending.outcome is None:
                self._send(pending, pending.batch)
        except BaseException:
            self._leave(pending)
            raise
        if isinstance(pending.outcome, Decision):
            return pending.outcome
        if isinstance(pending.outcome, protocol.BatchRefusedError):
            return _call(self._connections, protocol.hit(encoded), deadline)
        raise pending.outcome or _interrupted()

    def _wait(self, pending: _Pending) -> None:
        """Waits until there is an outcome, or a batch to send."""
        while True:
            with self._lock:
                queued = pending in self._queue
                if queued and self._hold_left() <= 0:
                    self._begin()
                    queued = pending in self._queue
                if pending.outcome is not None or pending.batch is not None:
                    return
                left = pending.deadline.left()
                if left == 0:
                    self._queue.pop(pending, None)
                    pending.gone = True
                    error = protocol.no_answer(pending.deadline.timeout, self._connections.address)
                    error.maybe_counted = not queued
                    raise error
                if queued:
                    left = min(left, max(self._hold_left(), 0))
            pending.woken.wait(left)

    def _hold_left(self) -> float:
        """Returns for how many seconds hits still wait for the exchange under way."""
        return 0 if self._current is None else self._current.began + self._hold - time.monotonic()

    def _leave(self, pending: _Pending) -> None:
        """Takes out a hit whose caller was interrupted."""
        with self._lock:
            self._queue.pop(pending, None)
            pending.gone = True
            if pending.batch is None or pending.outcome is not None:
                return
            if pending.batch.sent:
                self._end(pending.batch, [_interrupted() for _ in pending.batch.hits])
            else:
                self._delegate(pending.batch)

    def _send(self, sender: _Pending, batch: _Batch) -> None:
        batch.sent = True
        outcomes: Sequence[Result] = ()
        hits = [pending.encoded for pending in batch.hits]
        try:
            outcomes = _call(self._connections, protocol.coalesced(hits), sender.deadline)
        except CounterdError as error:
            outcomes = [error, *(error.of_its_own() for _ in hits[1:])]
        finally:  # also if the caller is interrupted
            with self._lock:
                self._end(batch, outcomes or [_interrupted() for _ in hits])

    def _end(self, batch: _Batch, outcomes: Sequence[Result]) -> None:
        """Hands on the outcomes of a batch, once, and begins the next exchange."""
        for pending, outcome in zip(batch.hits, outcomes):
            pending.outcome = pending.outcome or outcome
            pending.woken.set()
        if self._current is batch:
            self._begin()

    def _begin(self) -> None:
        """Begins an exchange of those that have waited longest, if any wait. Others wait for it."""
        hits = protocol.take(self._queue)
        self._current = _Batch(hits) if hits else None
        if self._current is not None:
            self._delegate(self._current)

    def _delegate(self, batch: _Batch) -> None:
        """Has the caller with the latest deadline send the batch."""
        batch.hits = [pending for pending in batch.hits if not pending.gone]
        if batch.hits:
            sender = max(batch.hits, key=lambda pending: pending.deadline.end)
            sender.batch = batch
            sender.woken.set()
        elif self._current is batch:
            self._begin()


def _interrupted() -> UnavailableError:
    return UnavailableError("another caller was interrupted", maybe_counted=True)


def _call(connections: Connections, operation: Operation[T], deadline: Deadline) -> T:
    return operation.read(connections.exchange(operation, deadline))


def check_timeout(timeout: float) -> float:
    """Returns a timeout that clocks can take."""
    if not isinstance(timeout, (int, float)) or not timeout > 0:
        raise InvalidError("the timeout is a number of seconds above 0")
    return min(timeout, threading.TIMEOUT_MAX)


def check_max_waiting(number: int) -> int:
    """Returns how many hits wait for their turns at most."""
    if type(number) is not int or number < 0:
        raise InvalidError("max_waiting is a whole number, at least 0")
    return number


class Client:
    """A client of one counterd server, for threads. It is made once, and shared.

    token is that of each request, or a function that returns it. timeout, in seconds, bounds a call with all that it
    waits for. on_failure says what decides if counterd does not: "error" raises, "allow" admits, "deny" denies.
    coalesce=False has each hit make a request of its own. At most max_waiting hits wait for their turns in queues at
    a time; with 0 none waits, and Decision.wait says how long to.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | Callable[[], str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        on_failure: OnFailure = "error",
        coalesce: bool = True,
        max_waiting: int = DEFAULT_MAX_WAITING,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._connections = Connections(protocol.parse_url(url), token, tls)
        self._timeout = check_timeout(timeout)
        self._coalescer = _Coalescer(self._connections, protocol.hold(timeout)) if coalesce else None
        self._on_failure = check_on_failure(on_failure)
        self._max_waiting = check_max_waiting(max_waiting)
        self._reset()
        reference = weakref.ref(self)

        def reset() -> None:
            client = reference()
            if client is not None:
                client._connections.reset()
                if client._coalescer is not None:
                    client._coalescer.reset()
                client._reset()

        after_fork(reset)

    def _reset(self) -> None:
        self._waiting = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the idle connections."""
        self._connections.close()

    def hit(
        self,
        event: str,
        features: Features,
        cost: int = 1,
        *,
        timeout: float | None = None,
        on_failure: OnFailure | None = None,
    ) -> Decision:
        """Adds a hit of that cost, 0 to 1,000,000, to the counters of an event that its rules name.

        It returns whether they admit it. A denial is no error.

        Where a rule has a queue, the hit returns when its turn has come. If that is later than the timeout, it gives
        the turn back at once, with all that it counts.
        """
        return self._decide(Hit(event, features, cost), timeout, on_failure)

    def reserve(
        self,
        event: str,
        features: Features,
        within: str,
        cost: int = 1,
        *,
        timeout: float | None = None,
        on_failure: OnFailure | None = None,
    ) -> Decision:
        """Is a hit whose cost is an estimate, which settle replaces within that time, such as "30s", up to 24h. After
        it, the estimate counts. Decision.reservation names what was reserved."""
        return self._decide(Hit(event, features, cost, reserve=within), timeout, on_failure)

    def settle(self, reservation: str, cost: int, *, timeout: float | None = None) -> None:
        """Replaces the cost that was reserved by the true one, 0 to 1,000,000, and releases leases.

        It may be repeated.
        """
        self._call(protocol.settle(reservation, cost), self._deadline(timeout))

    def release(self, reservation: str, *, timeout: float | None = None) -> None:
        """Gives back what was reserved, and releases leases."""
        self.settle(reservation, 0, timeout=timeout)

    def renew(self, reservation: str, by: str, *, timeout: float | None = None) -> str:
        """Has leases end no sooner than that from now, such as "30s", and returns the reservation to renew next."""
        return self._call(protocol.renew(reservation, by), self._deadline(timeout))

    def check(
        self,
        event: str,
        features: Features,
        cost: int = 1,
        *,
        timeout: float | None = None,
        on_failure: OnFailure | None = None,
    ) -> Decision:
        """Returns the decision that a hit would get, with exact counts, and adds nothing."""
        operation = protocol.check(event, features, cost)
        try:
            return self._call(operation, self._deadline(timeout))
        except CounterdError as error:
            return decide_failure(event, error, on_failure or self._on_failure)

    def batch(
        self, hits: Sequence[Hit], *, timeout: float | None = None, on_failure: OnFailure | None = None
    ) -> list[Result]:
        """Adds and decides 1 to 1,000 hits in one request, those on the same counter in their order, and returns one
        result for each. It does not wait for turns in queues: Decision.wait says how long to."""
        operation = protocol.batch([protocol.encode_hit(hit) for hit in hits])
        on_failure = on_failure or self._on_failure
        try:
            results = self._call(operation, self._deadline(timeout))
        except CounterdError as error:
            return [decide_failure(hit.event, error, on_failure) for hit in hits]
        return protocol.decide_failures(hits, results, on_failure)

    def increment(
        self,
        event: str,
        features: Features,
        by: int = 1,
        *,
        at: datetime.datetime | None = None,
        timeout: float | None = None,
    ) -> None:
        """Adds to the counters of an event without deciding, 1 to 1,000,000, now or at a moment."""
        self._call(protocol.increment(event, features, by, at), self._deadline(timeout))

    def count(
        self,
        event: str,
        features: Features,
        window: str,
        *,
        at: datetime.datetime | None = None,
        timeout: float | None = None,
    ) -> int:
        """Returns the sum of one counter over a window, such as "24h", that ends now or at a moment."""
        return self._call(protocol.count(event, features, window, at), self._deadline(timeout))

    def _deadline(self, timeout: float | None) -> Deadline:
        return Deadline(self._timeout if timeout is None else check_timeout(timeout))

    def _call(self, operation: Operation[T], deadline: Deadline) -> T:
        return _call(self._connections, operation, deadline)

    def _decide(self, hit: Hit, timeout: float | None, on_failure: OnFailure | None) -> Decision:
        deadline = self._deadline(timeout)
        encoded = protocol.encode_hit(hit)
        try:
            if self._coalescer is None:
                decision = self._call(protocol.hit(encoded), deadline)
            else:
                decision = self._coalescer.decide(encoded, deadline)
            if decision.allowed and decision.wait > 0 and self._max_waiting > 0:
                self._await_turn(decision, deadline)
            return decision
        except CounterdError as error:
            return decide_failure(hit.event, error, on_failure or self._on_failure)

    def _await_turn(self, decision: Decision, deadline: Deadline) -> None:
        if decision.wait > deadline.left():
            raise self._give_back(decision, f"the turn is in {decision.wait:g} s, later than the timeout")
        with self._lock:
            waits = self._waiting < self._max_waiting
            self._waiting += waits
        if not waits:
            raise self._give_back(decision, "too many hits wait for their turns")
        try:
            time.sleep(decision.wait)
        except BaseException:
            self._give_back(decision, "")
            raise
        finally:
            with self._lock:
                self._waiting -= 1

    def _give_back(self, decision: Decision, reason: str) -> UnavailableError:
        """Gives the turn back, and returns why the hit does not wait. A turn that has come by then is used."""
        maybe_counted = not decision.reservation
        if decision.reservation:
            try:
                self.release(decision.reservation, timeout=protocol.GIVE_BACK_TIMEOUT)
            except CounterdError:
                maybe_counted = True
        return protocol.given_back(decision, reason, maybe_counted=maybe_counted)
