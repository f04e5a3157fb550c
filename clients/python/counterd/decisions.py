"""Decisions, and the errors of calls."""

from __future__ import annotations

import copy
import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

Features: TypeAlias = Mapping[str, str | None]
"""Values by kind, such as {"ip": "203.0.113.9"}. A value of None is left out."""

OnFailure: TypeAlias = Literal["error", "allow", "deny", "open", "closed"]
"""What decides where counterd has not: the error, an admission, or a denial. The words are those of a rule's on_error;
open is allow, and closed is deny."""


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
    may_fit_after: int = 0
    """After how many seconds an open reservation or lease could make room, if that is before retry_after; else 0."""
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


def check_on_failure(on_failure: OnFailure) -> OnFailure:
    """Returns the setting."""
    if isinstance(on_failure, str) and on_failure in get_args(OnFailure):
        return on_failure
    raise InvalidError(f'on_failure must be "error", "allow" or "deny", not {on_failure!r}')


def decide_failure(event: str, error: CounterdError, on_failure: OnFailure) -> Decision:
    """Returns the decision in place of an error that is no fault of the caller, or raises the error."""
    if not isinstance(error, (UnavailableError, UnexpectedError)):
        raise error
    return decide_without(event, error, on_failure)


def decide_without(event: str, error: CounterdError, on_failure: OnFailure) -> Decision:
    """Returns the decision in place of an error, or raises the error."""
    if check_on_failure(on_failure) == "error":
        raise error
    # A rule that refuses what it cannot count outranks the client, and so does a queue.
    if error.decision is not None:
        return dataclasses.replace(error.decision, failed=error)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    allowed = on_failure in ("allow", "open")
    return Decision(allowed=allowed, event=event, at=now, retry_after=0 if allowed else 1, failed=error)


def is_sound(value: Any, types: tuple[type, ...]) -> bool:
    """Reports whether a value is of one of the types, and a number one that the server's counters and clocks take."""
    return type(value) in types and (type(value) not in (int, float) or 0 <= value < 1 << 63)


_Types: TypeAlias = Mapping[str, tuple[type, ...]]

_STR, _INT, _BOOL, _SECONDS, _LIST = (str,), (int,), (bool,), (int, type(None)), (list,)
_LIMIT: _Types = dict(
    name=_STR, feature=_STR, limit=_INT, window=_STR, count=_INT, remaining=_INT, reset=_SECONDS, allowed=_BOOL
)
_LIMIT_OPTIONS: _Types = dict(
    algorithm=_STR, exact=_BOOL, shadow=_BOOL, over=_BOOL, incomplete=_BOOL, unreserved=_BOOL, on_error=_STR
)
_DECISION: _Types = dict(allowed=_BOOL, event=_STR, at=_STR, retry_after=_SECONDS, limits=_LIST)
_DECISION_OPTIONS: _Types = dict(retry_after_ms=_INT, may_fit_after=_INT, wait=(int, float), reservation=_STR)
_PROBLEM_OPTIONS: _Types = dict(type=_STR, title=_STR, status=_INT, detail=_STR, errors=_LIST)
_FAULT_OPTIONS: _Types = dict(detail=_STR, pointer=_STR, parameter=_STR)


def _read_members(body: Any, members: _Types, options: _Types) -> dict[str, Any] | None:
    """Returns the members of an object. It has all but the options, and each is of one of its types."""
    if not isinstance(body, dict) or not members.keys() <= body.keys():
        return None
    read = {name: body[name] for name in (*members, *options) if name in body}
    types = {**members, **options}
    return read if all(is_sound(value, types[name]) for name, value in read.items()) else None


def read_decision(body: Any) -> Decision | None:
    """Returns the decision that a body is."""
    read = _read_members(body, _DECISION, _DECISION_OPTIONS)
    if read is None or not read["event"] or not read["at"]:
        return None
    limits = [_read_members(limit, _LIMIT, _LIMIT_OPTIONS) for limit in read["limits"]]
    if not all(limit and limit["name"] for limit in limits):
        return None
    read["limits"] = tuple(LimitState(**limit) for limit in limits if limit)
    return Decision(**read)


def is_problem(body: Any) -> bool:
    """Reports whether a body is a problem document."""
    read = _read_members(body, {}, _PROBLEM_OPTIONS)
    return read is not None and all(
        _read_members(fault, {}, _FAULT_OPTIONS) is not None for fault in read.get("errors", ())
    )


def read_result(result: Any, request_id: str | None, place: str) -> Decision | CounterdError | None:
    """Returns the decision that a result of a batch is, or the error. A result that is neither, or both, is none."""
    read = _read_members(result, {"status": _INT}, {})
    if read is None:
        return None
    status = read["status"]
    has_problem = not result.keys().isdisjoint(_PROBLEM_OPTIONS.keys() - {"status"})
    if result.keys().isdisjoint({*_DECISION, *_DECISION_OPTIONS}):
        fits = has_problem and status >= 400 and is_problem(result)
        return read_problem(status, result, request_id, place) if fits else None
    decision = None if has_problem else read_decision(result)
    if decision is None or status not in (200, 429, 503) or decision.allowed != (status == 200):
        return None
    return read_problem(status, result, request_id) if status == 503 else decision


def read_problem(status: int, problem: Any, request_id: str | None = None, place: str = "") -> CounterdError:
    """Makes an error of an answer that is not a success. A problem of None is an answer without a problem document.

    Where the error names places, they are relative to place, a JSON pointer.
    """
    document = problem or {}
    title, detail = document.get("title", ""), document.get("detail", "")
    message = ": ".join(filter(None, (f"{status} {title}".strip(), detail.removeprefix(place))))
    foreign = problem is None  # a proxy says it, which may have passed the hit on
    error = _kind_of(status, not foreign)(
        message, maybe_counted=status >= 500 or status == 429 or status < 400 or foreign
    )
    error.status = status
    error.request_id = request_id
    error.faults = tuple(
        Fault(fault.get("detail", ""), fault.get("pointer", "").removeprefix(place), fault.get("parameter", ""))
        for fault in document.get("errors", ())
    )
    refusal = read_decision(document) if status == 503 else None
    if refusal is not None and not refusal.allowed:
        error.decision = refusal
    return error
