"""Decisions, and the errors of calls."""

from __future__ import annotations

import copy
import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Features: TypeAlias = Mapping[str, str | None]
"""Values by kind, such as {"ip": "203.0.113.9"}. A value of None is left out."""

OnFailure: TypeAlias = Literal["error", "open", "closed"]
"""What decides where counterd has not: the error, an admission, or a denial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """The state of one limit after a hit, with the fields of docs/http.md."""

    name: str
    feature: str
    limit: int
    window: str
    count: int
    remaining: int
    reset: int | None
    allowed: bool
    algorithm: str = ""
    exact: bool = True
    shadow: bool = False
    over: bool = False
    incomplete: bool = False
    unreserved: bool = False
    on_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision, with the fields of docs/http.md."""

    allowed: bool
    event: str
    at: str
    retry_after: int | None
    """In how many seconds all limits admit the hit, if nothing else comes; None: never."""
    retry_after_ms: int = 0
    wait: float = 0
    reservation: str = ""
    limits: Sequence[LimitState] = ()
    failed: CounterdError | None = None
    """Why there is no decision of the limits: on_failure, or a rule's on_error, has decided instead."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a request, with its place."""

    detail: str
    pointer: str = ""
    parameter: str = ""


class CounterdError(Exception):
    """What prevents a call. Its text repeats no feature's value, and no token."""

    def __init__(self, message: str = "", *, maybe_counted: bool = False) -> None:
        super().__init__(message)
        self.status: int | None = None
        """The status of the answer, if there is one."""
        self.faults: Sequence[Fault] = ()
        self.request_id: str | None = None
        """The server's log has it."""
        self.decision: Decision | None = None
        """What counterd decided, if a rule refuses what it cannot count, or a turn in a queue was given back."""
        self.maybe_counted = maybe_counted
        """Whether the server may have counted the hit all the same. False: it has not."""

    def of_its_own(self) -> CounterdError:
        """Returns an equal error for another caller, with a traceback of its own."""
        other = copy.copy(self)
        other.__cause__ = self.__cause__
        return other


class InvalidError(CounterdError):
    """The request is at fault: a 4xx of no other kind, or the client has refused to send it."""


class RefusedError(CounterdError):
    """401, 403: the token is missing, unknown, or not valid for this."""


class UnknownEventError(CounterdError):
    """404: the rules have no such event."""


class SettledError(CounterdError):
    """409: the reservation was settled with another cost."""


class EndedError(CounterdError):
    """410: the reservation, or the lease, has ended."""


class UnavailableError(CounterdError):
    """No connection, no answer in time, or a 5xx; also a 429 of a proxy in between."""


class UnexpectedError(CounterdError):
    """The answer is not one of counterd's, such as a proxy's 404."""


_KINDS: Mapping[int, type[CounterdError]] = {404: UnknownEventError, 409: SettledError, 410: EndedError}


def _kind_of(status: int, is_problem: bool) -> type[CounterdError]:
    """Returns the kind of an error. A proxy's answer has no problem document."""
    if status in (401, 403):
        return RefusedError
    if status >= 500 or status == 429:  # a 429 of a proxy: counterd's own is a decision
        return UnavailableError
    if status < 400 or not is_problem:
        return UnexpectedError
    return _KINDS.get(status, InvalidError)


def decide_failure(event: str, error: CounterdError, on_failure: OnFailure) -> Decision:
    """Returns the decision in place of an error that is no fault of the caller, or raises the error."""
    if on_failure == "error" or not isinstance(error, (UnavailableError, UnexpectedError)):
        raise error
    # A rule that refuses what it cannot count outranks the client, and so does a queue.
    if error.decision is not None:
        return dataclasses.replace(error.decision, failed=error)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    allowed = on_failure == "open"
    return Decision(allowed=allowed, event=event, at=now, retry_after=0 if allowed else 1, failed=error)


def is_sound(value: Any, types: tuple[type, ...]) -> bool:
    """Reports whether a value is of one of the types, and a number one that the server's counters and clocks take."""
    return type(value) in types and (type(value) not in (int, float) or 0 <= value < 1 << 63)


def _has(body: Mapping[str, Any], **types: tuple[type, ...]) -> bool:
    return all(is_sound(body.get(name), wanted) for name, wanted in types.items())


_STR, _INT, _BOOL, _SECONDS = (str,), (int,), (bool,), (int, type(None))
_LIMIT_FIELDS = frozenset(field.name for field in dataclasses.fields(LimitState))


def _read_limit(body: Any) -> LimitState | None:
    if not isinstance(body, dict):
        return None
    required = dict(name=_STR, feature=_STR, limit=_INT, window=_STR, count=_INT, remaining=_INT, allowed=_BOOL)
    if not _has(body, reset=_SECONDS, **required) or "reset" not in body:
        return None
    return LimitState(**{name: value for name, value in body.items() if name in _LIMIT_FIELDS})


def read_decision(body: Any) -> Decision | None:
    """Returns the decision that a body is."""
    if not isinstance(body, dict) or not isinstance(body.get("limits"), list) or "retry_after" not in body:
        return None
    limits = [_read_limit(limit) for limit in body["limits"]]
    decision = Decision(
        allowed=body.get("allowed", None),
        event=body.get("event", None),
        at=body.get("at", None),
        retry_after=body["retry_after"],
        retry_after_ms=body.get("retry_after_ms", 0),
        wait=body.get("wait", 0),
        reservation=body.get("reservation", ""),
        limits=tuple(limit for limit in limits if limit is not None),
    )
    fields = {field.name: getattr(decision, field.name) for field in dataclasses.fields(decision)}
    sound = _has(
        fields,
        allowed=_BOOL,
        event=_STR,
        at=_STR,
        retry_after=_SECONDS,
        retry_after_ms=_INT,
        wait=(int, float),
        reservation=_STR,
    )
    return decision if sound and len(decision.limits) == len(limits) else None


def read_problem(status: int, problem: Any, request_id: str | None = None, place: str = "") -> CounterdError:
    """Makes an error of an answer that is not a success.

    Where the error names places, they are relative to place, a JSON pointer.
    """
    document = problem if isinstance(problem, dict) else {}
    texts = [document.get(name) for name in ("title", "detail")]
    title, detail = (text if isinstance(text, str) else "" for text in texts)
    message = ": ".join(filter(None, (f"{status} {title}".strip(), detail.removeprefix(place))))
    is_problem = isinstance(problem, dict)  # else a proxy says it, which may have passed the hit on
    error = _kind_of(status, is_problem)(
        message, maybe_counted=status >= 500 or status == 429 or status < 400 or not is_problem
    )
    error.status = status
    error.request_id = request_id
    faults = document.get("errors")
    if isinstance(faults, list):
        error.faults = tuple(
            Fault(
                str(fault.get("detail", "")),
                str(fault.get("pointer", "")).removeprefix(place),
                str(fault.get("parameter", "")),
            )
            for fault in faults
            if isinstance(fault, dict)
        )
    if status == 503:
        error.decision = read_decision(document)
    return error


def read_outcome(status: int, body: Any, request_id: str | None = None, place: str = "") -> Decision:
    """Returns the decision that the answer to a hit has, or raises what is wrong with it."""
    if status in (200, 429):
        decision = read_decision(body)
        if decision is not None and decision.allowed == (status == 200):
            return decision
    if status == 200:
        error = UnexpectedError("the answer is no decision", maybe_counted=True)
        error.status = status
        raise error
    raise read_problem(status, body, request_id, place)
