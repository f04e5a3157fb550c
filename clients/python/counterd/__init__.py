"""The client of counterd, the distributed rate limiter and event counter."""

from .aio import AsyncClient
from .decisions import (
    CounterdError,
    Decision,
    EndedError,
    Fault,
    Features,
    InvalidError,
    LimitState,
    OnFailure,
    RefusedError,
    SettledError,
    UnavailableError,
    UnexpectedError,
    UnknownEventError,
)
from .headers import rate_limit_headers
from .middleware import ASGIMiddleware, WSGIMiddleware
from .protocol import Hit, Result
from .sync import Client

__all__ = [
    "ASGIMiddleware",
    "AsyncClient",
    "Client",
    "CounterdError",
    "Decision",
    "EndedError",
    "Fault",
    "Features",
    "Hit",
    "InvalidError",
    "LimitState",
    "OnFailure",
    "RefusedError",
    "Result",
    "SettledError",
    "UnavailableError",
    "UnexpectedError",
    "UnknownEventError",
    "WSGIMiddleware",
    "rate_limit_headers",
]
