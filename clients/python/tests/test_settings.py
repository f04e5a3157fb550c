"""What the constructors refuse, and what the errors of a server that is away say."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import unittest
import unittest.mock
from typing import Any

import counterd
from counterd import ASGIMiddleware, AsyncClient, Client, WSGIMiddleware, middleware, rate_limit_headers

from .support import CLIENTS, raw_server

URL = "http://127.0.0.1:1"


def closed_port() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


class TestSettings(unittest.TestCase):
    def test_unknown_values_are_errors_in_constructors(self) -> None:
        for client in (Client, AsyncClient):
            for settings in (
                {"on_failure": "permit"}, {"on_failure": "Allow"}, {"on_failure": None}, {"on_failure": True},
                {"timeout": 0}, {"timeout": "2"}, {"timeout": float("nan")}, {"max_waiting": -1}, {"max_waiting": "9"},
            ):
                with self.subTest(client=client, **settings), self.assertRaises(counterd.InvalidError):
                    client(URL, **settings)  # type: ignore[arg-type]
        for middleware, made in ((WSGIMiddleware, Client(URL)), (ASGIMiddleware, AsyncClient(URL))):
            for settings in ({"on_failure": "permit"}, {"event": "Api"}, {"event": 7}):
                arguments: dict[str, Any] = {"event": "api", "features": lambda _: {}, **settings}
                with self.subTest(middleware=middleware, **settings), self.assertRaises(counterd.InvalidError):
                    middleware(None, made, **arguments)  # type: ignore[arg-type]
        with self.assertRaisesRegex(counterd.InvalidError, 'on_failure must be "error", "allow" or "deny"'):
            Client(URL, on_failure="permit")  # type: ignore[arg-type]
        with contextlib.closing(Client(URL)) as client, self.assertRaises(counterd.InvalidError):
            client.hit("api", {"user": "x"}, on_failure="permit")  # type: ignore[arg-type]

    def test_the_words_are_those_of_on_error(self) -> None:
        for word, allowed in (("allow", True), ("deny", False), ("open", True), ("closed", False)):
            for make in CLIENTS.values():
                with self.subTest(word, make=make), contextlib.closing(make(URL, on_failure=word)) as client:
                    for decision in (
                        client.hit("api", {"user": "x"}), client.check("api", {"user": "x"}),
                        client.batch([counterd.Hit("api", {"user": "x"})])[0],
                    ):
                        self.assertEqual((decision.allowed, type(decision.failed)), (allowed, counterd.UnavailableError))

    def test_a_token_that_no_header_can_carry(self) -> None:
        for token in ("sesame\n", "", "ses ame", "ses\r\name", "sesame\x01", "sésame", 7):
            for client in (Client, AsyncClient):
                with self.subTest(token=token, client=client):
                    with self.assertRaisesRegex(counterd.InvalidError, "trim what was read") as caught:
                        client(URL, token=token)  # type: ignore[arg-type]
                    self.assertNotIn("sesame", str(caught.exception))
            for make in CLIENTS.values():
                with self.subTest(token=token, make=make), contextlib.closing(make(URL, token=lambda: token)) as made:
                    with self.assertRaisesRegex(counterd.RefusedError, "trim what was read") as refused:
                        made.hit("api", {"user": "x"})
                    self.assertNotIn("sesame", str(refused.exception))

    def test_errors_name_the_address(self) -> None:
        away = closed_port()
        for make in CLIENTS.values():
            with contextlib.closing(make(away + "/prefix/")) as client:
                with self.assertRaisesRegex(counterd.UnavailableError, f"cannot reach {away}/prefix: .*(refused|failed)"):
                    client.hit("api", {"user": "x"})
            for answer in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"no HTTP\r\n\r\n"):
                def serve(connection: socket.socket) -> None:
                    connection.sendall(answer)
                    connection.close()

                with raw_server(serve) as url, contextlib.closing(make(url)) as client:
                    with self.assertRaises(counterd.UnavailableError) as caught:
                        client.hit("api", {"user": "x"})
                    self.assertIn(url, str(caught.exception))
            with raw_server(lambda connection: connection.recv(1)) as url:
                with contextlib.closing(make(url, timeout=0.05)) as client:
                    with self.assertRaisesRegex(counterd.UnavailableError, f"no answer within 0.05 s from {url}"):
                        client.hit("api", {"user": "x"})


def decision(**limit: Any) -> counterd.Decision:
    state: dict[str, Any] = dict(
        name="n", feature="", limit=1, window="1m", count=1, remaining=0, reset=0, allowed=True, algorithm="concurrency"
    )
    state.update(limit)
    return counterd.Decision(
        allowed=True, event="api", at="x", retry_after=0, reservation="r", limits=[counterd.LimitState(**state)]
    )


class TestHostileServer(unittest.TestCase):
    def test_windows_are_parsed_strictly(self) -> None:
        for window, want in {
            "1s": 1, "90s": 90, "15m": 900, "24h": 86400, "30d": 2_592_000, "1h30m": 5400, "month": None, "": None, "1": None,
            "s": None, "-1s": None, "1.5s": None, "1 s": None, "1s\n": None, "\u0661s": None, "99999999s": None,
            "9" * 5000 + "s": None, "9" * 60_000: None, "1s" * 60_000: None,
        }.items():
            with self.subTest(window[:9]):
                self.assertEqual(counterd.headers.seconds(window), want)
                limits = rate_limit_headers(decision(window=window, algorithm=""))
                self.assertEqual(limits["RateLimit-Policy"], '"n";q=1' + (f";w={want}" if want else ""))

    def test_at_least_a_second_is_between_renewals(self) -> None:
        for window in ("0s", "1s", "month", "3s", "1d", "9999999d"):
            pauses: list[float] = []

            class Ended:
                def wait(self, seconds: float) -> bool:
                    pauses.append(seconds)
                    return len(pauses) > 1

            class Fake:
                def renew(self, reservation: str, by: str) -> str:
                    return reservation

            lease = object.__new__(middleware._Lease)
            lease._client, lease._reservation, lease._ended = Fake(), "r", Ended()  # type: ignore[assignment]
            lease._length = middleware._lease_of(decision(window=window)) or 0
            lease._renew()
            with self.subTest(window):
                self.assertTrue(all(1 <= pause <= 864_000 for pause in pauses), pauses)

        async def main() -> list[float]:
            pauses: list[float] = []

            async def sleep(seconds: float) -> None:
                pauses.append(seconds)
                raise asyncio.CancelledError

            limited = ASGIMiddleware(None, AsyncClient(URL), "api", lambda _: {})  # type: ignore[arg-type]
            for window in ("0s", "1s", "9999999d"):
                with unittest.mock.patch("asyncio.sleep", sleep), contextlib.suppress(asyncio.CancelledError):
                    await limited._renew(["r"], middleware._lease_of(decision(window=window)) or 0)
            return pauses

        self.assertEqual(asyncio.run(main()), [1, 1, 864_000])


if __name__ == "__main__":
    unittest.main()
