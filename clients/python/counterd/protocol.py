"""The requests of counterd's HTTP interface, and how their answers are read. Nothing here does I/O."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import re
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from .decisions import (
    CounterdError,
    Decision,
    Features,
    InvalidError,
    OnFailure,
    RefusedError,
    UnavailableError,
    UnexpectedError,
    decide_failure,
    is_problem,
    is_sound,
    read_decision,
    read_problem,
    read_result,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MAX_HITS = 1000
"""The most hits of a batch."""
MAX_BATCH_BYTES = 512 << 10
"""Half of what the server reads."""
MAX_HOLD = 1.0
HOLD_SHARE = 4
"""Of a timeout."""
QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"

_REFUSES_BATCHES = (400, 404, 405, 413)
"""Statuses of an answer to a batch of which no hit was counted."""

_JSON = json.JSONDecoder(parse_constant=int)  # which refuses NaN and Infinity
_EVENT = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_MAX_KINDS = 16


@dataclass(frozen=True, slots=True)
class Hit:
    """One hit of a batch. With reserve, such as "30s", the cost is an estimate."""

    event: str
    features: Features
    cost: int = 1
    reserve: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: body is a JSON value, or None."""

    status: int
    body: Any
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Operation(Generic[T_co]):
    """A request, and what reads its answer."""

    method: str
    path: str
    body: bytes | None
    read: Callable[[Answer], T_co]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is."""

    tls: bool
    host: str
    port: int
    prefix: str
    authority: str

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"


def parse_url(url: str) -> Address:
    """Returns the address that a URL such as http://127.0.0.1:8080 names."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")
    except (ValueError, TypeError, AttributeError):
        raise InvalidError("the URL is written like http://127.0.0.1:8080") from None
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or re.search(r"[^!-~]", url):
        raise InvalidError("the URL is written like http://127.0.0.1:8080, without a user, query or fragment")
    tls = parts.scheme == "https"
    return Address(tls, parts.hostname, port or (443 if tls else 80), parts.path.rstrip("/"), parts.netloc)


def check_token(token: object, fault: type[RefusedError | InvalidError] = RefusedError) -> str:
    """Returns the token. If no header can carry it, raises the fault."""
    if isinstance(token, str) and re.fullmatch(r"[!-~]+", token):
        return token
    raise fault(
        "the token is empty, or contains white space, control or non-ASCII characters: "
        "trim what was read, such as a newline at its end"
    )


def read_answer(status: int, media: str | None, text: bytes | bytearray, request_id: str | None) -> Answer:
    """Returns an answer. A body of another media type than counterd's is none, nor is one that is no problem document
    with a status of failure."""
    succeeds = 200 <= status < 300
    wanted = "application/json" if succeeds else "application/problem+json"
    body: Any = None
    if media is not None and media.partition(";")[0].strip().lower() == wanted:
        try:
            body = _JSON.decode(text.decode())
        except (ValueError, RecursionError):
            pass
    return Answer(status, body if succeeds or is_problem(body) else None, request_id)


def no_answer(timeout: float, address: Address | str = "the server") -> UnavailableError:
    return UnavailableError(f"no answer within {timeout:g} s from {address}", maybe_counted=True)


def _encode(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        raise InvalidError("a feature's value is a string of whole characters") from None


def check_event(event: str) -> str:
    """Returns the name of an event. Another text could lead to another route."""
    if not isinstance(event, str) or not _EVENT.fullmatch(event):
        raise InvalidError("the event's name is 1 to 64 of a-z, 0-9, _, . and -, and begins with a letter")
    return event


def _given(features: Features) -> dict[str, str]:
    try:
        given = {kind: value for kind, value in features.items() if value is not None}
    except AttributeError:
        raise InvalidError("features are a mapping of values by kind") from None
    if len(given) > _MAX_KINDS:
        raise InvalidError(f"a hit has at most {_MAX_KINDS} features")
    if not all(isinstance(kind, str) and isinstance(value, str) for kind, value in given.items()):
        raise InvalidError("a feature's kind and value are strings")
    return given


def _whole(number: int) -> int:
    """Returns a cost. The server reports one that is out of range."""
    if type(number) is not int or abs(number) >= 2**53:
        raise InvalidError("the cost is a whole number")
    return number


def _text(text: str, name: str) -> str:
    if not isinstance(text, str):
        raise InvalidError(f'{name} is a text such as "30s"')
    return text


@dataclass(slots=True)
class EncodedHit:
    """The JSON of a hit, by itself and as a member of a batch."""

    event: str
    alone: bytes
    member: bytes


def encode_hit(hit: Hit) -> EncodedHit:
    """Encodes a hit. It raises what would be a fault of the whole batch: the server reports all other faults
    with the hit that has them."""
    body: dict[str, object] = {"features": _given(hit.features), "cost": _whole(hit.cost)}
    if hit.reserve is not None:
        body["reserve"] = _text(hit.reserve, "reserve")
    event = check_event(hit.event)
    return EncodedHit(event, _encode(body), _encode(dict(body, event=event)))


def hit(encoded: EncodedHit) -> Operation[Decision]:
    def read(answer: Answer) -> Decision:
        # A proxy in between may send a problem document with status 429, too.
        denies = answer.status == 429 and answer.body is not None and answer.body.get("type") == QUOTA_EXCEEDED
        decision = read_decision(answer.body if denies else _success(answer))
        if decision is not None and decision.allowed != denies:
            return decision
        raise read_problem(429, None, answer.request_id) if denies else _unexpected(answer)

    return Operation("POST", f"/v1/events/{encoded.event}/hit", encoded.alone, read)


Result: TypeAlias = Decision | CounterdError
"""What a batch returns for a hit: its decision, or what is wrong with it."""


class BatchRefusedError(CounterdError):
    """The server takes no batches, or none of this size: each hit goes by itself."""


def batch(hits: Sequence[EncodedHit], *, coalesced: bool = False) -> Operation[list[Result]]:
    """Sends hits in one request. Those that are coalesced have different callers, which know of no batch: the places
    in their errors are without it."""
    if not 1 <= len(hits) <= MAX_HITS:
        raise InvalidError(f"a batch has 1 to {MAX_HITS} hits")

    def read(answer: Answer) -> list[Result]:
        if coalesced and answer.status in _REFUSES_BATCHES and isinstance(answer.body, dict):
            raise BatchRefusedError
        results = _success(answer).get("results")
        if not isinstance(results, list) or len(results) != len(hits):
            raise _unexpected(answer, "it has not one result for each hit")
        places = [f"/hits/{n}" if coalesced else "" for n in range(len(hits))]
        read = [read_result(result, answer.request_id, place) for result, place in zip(results, places)]
        outcomes = [outcome for outcome in read if outcome is not None]
        if len(outcomes) != len(hits):
            raise _unexpected(answer, "a result is neither a decision nor a problem")
        return outcomes

    body = b'{"hits":[' + b",".join(hit.member for hit in hits) + b"]}"
    return Operation("POST", "/v1/batch", body, read)


def coalesced(hits: Sequence[EncodedHit]) -> Operation[list[Result]]:
    """Sends hits of different callers. A lone one makes a request of its own."""
    if len(hits) > 1:
        return batch(hits, coalesced=True)
    alone = hit(hits[0])
    return Operation(alone.method, alone.path, alone.body, lambda answer: [alone.read(answer)])


def take(queue: dict[T, EncodedHit]) -> list[T]:
    """Takes out what has waited longest, as much as goes together in a batch."""
    taken: list[T] = []
    size = 10  # of what is around the hits
    for waiting, encoded in itertools.islice(queue.items(), MAX_HITS):
        size += len(encoded.member) + 1
        if taken and size > MAX_BATCH_BYTES:
            break
        taken.append(waiting)
    for waiting in taken:
        del queue[waiting]
    return taken


def hold(timeout: float) -> float:
    """Returns for how many seconds the hits of a client with that timeout wait for an exchange that is under way."""
    return min(MAX_HOLD, timeout / HOLD_SHARE)


def decide_failures(hits: Sequence[Hit], results: Sequence[Result], on_failure: OnFailure) -> list[Result]:
    """Decides the failures among the results of a batch, where on_failure does."""

    def decide(hit: Hit, result: Result) -> Result:
        if isinstance(result, Decision):
            return result
        try:
            return decide_failure(hit.event, result, on_failure)
        except CounterdError as error:
            return error

    return [decide(hit, result) for hit, result in zip(hits, results)]


def check(event: str, features: Features, cost: int) -> Operation[Decision]:
    def read(answer: Answer) -> Decision:
        decision = read_decision(_success(answer))
        if decision is None:
            raise _unexpected(answer)
        return decision

    query = [*_feature_query(features), ("cost", str(_whole(cost)))]
    return Operation("GET", f"/v1/events/{check_event(event)}/check?{_query(query)}", None, read)


def settle(reservation: str, cost: int) -> Operation[None]:
    def read(answer: Answer) -> None:
        if _success(answer).get("settled") is not True:
            raise _unexpected(answer)

    body = _encode({"reservation": _text(reservation, "reservation"), "cost": _whole(cost)})
    return Operation("POST", "/v1/settle", body, read)


def renew(reservation: str, by: str) -> Operation[str]:
    def read(answer: Answer) -> str:
        renewed = _success(answer).get("reservation")
        if not isinstance(renewed, str) or not renewed:
            raise _unexpected(answer)
        return renewed

    body = _encode({"reservation": _text(reservation, "reservation"), "renew": _text(by, "by")})
    return Operation("POST", "/v1/settle", body, read)


def increment(event: str, features: Features, by: int, at: datetime.datetime | None) -> Operation[None]:
    def read(answer: Answer) -> None:
        counted = _success(answer).get("event")
        if not isinstance(counted, str) or not counted:
            raise _unexpected(answer)

    body: dict[str, object] = {"features": _given(features), "by": _whole(by)}
    if at is not None:
        body["at"] = int(at.timestamp())
    return Operation("POST", f"/v1/events/{check_event(event)}/increment", _encode(body), read)


def count(event: str, features: Features, window: str, at: datetime.datetime | None) -> Operation[int]:
    def read(answer: Answer) -> int:
        sum_: Any = _success(answer).get("count")
        if not is_sound(sum_, (int,)):
            raise _unexpected(answer)
        return int(sum_)

    query = [*_feature_query(features), ("window", _text(window, "window"))]
    if at is not None:
        query.append(("at", str(int(at.timestamp()))))
    return Operation("GET", f"/v1/events/{check_event(event)}/count?{_query(query)}", None, read)


def _feature_query(features: Features) -> list[tuple[str, str]]:
    return [("feature", f"{kind}:{value}") for kind, value in _given(features).items()]


def _query(pairs: Sequence[tuple[str, str]]) -> str:
    try:
        return urllib.parse.urlencode(pairs)
    except UnicodeEncodeError:
        raise InvalidError("a feature's value is a string of whole characters") from None


def _success(answer: Answer) -> dict[str, Any]:
    if not 200 <= answer.status < 300:
        raise read_problem(answer.status, answer.body, answer.request_id)
    if answer.status != 200 or not isinstance(answer.body, dict):
        raise _unexpected(answer)
    return answer.body


def _unexpected(answer: Answer, reason: str = "it is not what the contract has") -> UnexpectedError:
    """Returns the error of a success that is not counterd's. A proxy may have passed the hit on."""
    error = UnexpectedError(f"the answer is unexpected: {reason}", maybe_counted=True)
    error.status = answer.status
    error.request_id = answer.request_id
    return error


def given_back(decision: Decision, reason: str, *, maybe_counted: bool) -> UnavailableError:
    """Returns the error of a hit that did not wait for its turn."""
    error = UnavailableError(f"{reason}: it was given back", maybe_counted=maybe_counted)
    error.decision = dataclasses.replace(decision, allowed=False)
    return error


GIVE_BACK_TIMEOUT = 2.0
"""How long a hit whose caller does not wait takes at most to give back its turn or lease."""
