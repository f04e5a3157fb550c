"""The header fields by which a service tells its own clients of a decision's limits."""

from __future__ import annotations

import re

from .decisions import Decision, LimitState

_DURATION = re.compile(r"(?:[0-9]{1,7}[smhd]){1,4}")
"""The numbers are bounded, so that a server that is not counterd's cannot make their parsing slow, or an error."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(window: str) -> int | None:
    """Returns a duration in seconds. A unit of a calendar, such as month, has no fixed length: None."""
    if not _DURATION.fullmatch(window):
        return None
    return sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"([0-9]+)([smhd])", window))


def _quote(name: str) -> str:
    """A string of RFC 9651. The rules have names of printable ASCII, without quotes and backslashes."""
    return '"' + re.sub(r"[^ !#-\[\]-~]", "_", name) + '"'


def unanswered(limit: LimitState) -> bool:
    """Reports whether the store could not be asked: then what remains is not known."""
    return limit.on_error in ("allow", "deny")


def _policy(limit: LimitState) -> str:
    policy = f"{_quote(limit.name)};q={limit.limit}"
    if limit.algorithm == "concurrency":
        return policy + ';qu="concurrent-requests"'
    window = seconds(limit.window)
    return policy if window is None else f"{policy};w={window}"


def _state(limit: LimitState) -> str:
    until = "" if limit.allowed or limit.reset is None else f";t={limit.reset}"
    return f"{_quote(limit.name)};r={limit.remaining}{until}"


def rate_limit_headers(decision: Decision) -> dict[str, str]:
    """Returns RateLimit-Policy and RateLimit, as in revision 11 of draft-ietf-httpapi-ratelimit-headers, and of a
    denial Retry-After.

    They equal the fields of counterd's answer to a single hit, but for the window of a calendar, whose length only the
    server knows. A decision by a failure has none.
    """
    headers: dict[str, str] = {}
    if decision.failed is not None:
        return headers
    limits = [limit for limit in decision.limits if not limit.shadow]
    policies = [_policy(limit) for limit in limits]
    states = [_state(limit) for limit in limits if not unanswered(limit)]
    if policies:
        headers["RateLimit-Policy"] = ", ".join(policies)
    if states:
        headers["RateLimit"] = ", ".join(states)
    if not decision.allowed and decision.retry_after is not None:
        headers["Retry-After"] = str(decision.may_fit_after or decision.retry_after)
    return headers
