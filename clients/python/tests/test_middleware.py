"""The WSGI and ASGI middleware, in servers of the standard library and of the tests."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import unittest
import urllib.error
import urllib.request
import wsgiref.simple_server
import wsgiref.validate
from typing import Any

import counterd
from counterd import ASGIMiddleware, AsyncClient, Client, WSGIMiddleware

from .support import LONG, Counterd, raw_server

DENIED = "https://iana.org/assignments/http-problem-types#quota-exceeded"


class Battery(unittest.TestCase):
    server: Counterd

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Counterd()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.stop()

    def assert_denied(self, status: int, headers: Any, body: bytes) -> None:
        problem = json.loads(body)
        self.assertEqual((status, headers["content-type"]), (429, "application/problem+json"))
        self.assertEqual(headers["ratelimit-policy"], '"user-2-per-1h";q=2;w=3600')
        self.assertRegex(headers["ratelimit"], r'^"user-2-per-1h";r=0;t=\d+$')
        self.assertEqual((problem["type"], problem["status"]), (DENIED, 429))
        self.assertEqual(problem["violated-policies"], ["user-2-per-1h"])
        self.assertEqual(headers["retry-after"], str(problem["retry_after"]))
        self.assertRegex(problem["detail"], r"^Denied by user-2-per-1h: it fits in \d+ seconds, if nothing else comes\.$")



NO_ADDRESSES: list[str | None] = [None, "", " ", "unix:", "unix:/run/app.sock", "@"]
"""What servers have for the address of a client on a Unix socket, and of a header that is empty."""


class TestWSGI(Battery):
    def client(self, url: str | None = None, **settings: Any) -> Client:
        client = Client(url or self.server.url, timeout=LONG, **settings)
        self.addCleanup(client.close)
        return client

    def serve(self, app: Any) -> str:
        class Handler(wsgiref.simple_server.WSGIRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

        server = wsgiref.simple_server.make_server("127.0.0.1", 0, wsgiref.validate.validator(app), handler_class=Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        def stop() -> None:
            server.shutdown()
            thread.join()
            server.server_close()

        self.addCleanup(stop)
        return f"http://127.0.0.1:{server.server_port}"

    def get(self, url: str, user: str | None = None, data: bytes | None = None) -> tuple[int, Any, bytes]:
        request = urllib.request.Request(url, data, {} if user is None else {"X-User": user})
        try:
            response: Any = urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            return response.status, response.headers, response.read()

    @staticmethod
    def hello(environ: Any, start_response: Any) -> list[bytes]:
        decision = environ.get("counterd.decision")
        start_response("200 OK", [("Content-Type", "text/plain"), ("RateLimit", "mine")])
        return [b"unlimited" if decision is None else decision.limits[0].name.encode() if decision.limits else b"open"]

    def limit(self, client: Client, **settings: Any) -> Any:
        return WSGIMiddleware(
            wsgiref.validate.validator(self.hello),
            client,
            lambda environ: None if environ["REQUEST_METHOD"] == "POST" else "two",
            lambda environ: {"user": environ.get("HTTP_X_USER")},
            **settings,
        )

    def test_requests_are_hits(self) -> None:
        url = self.serve(self.limit(self.client()))
        for remaining in (1, 0):
            status, headers, body = self.get(url, "wsgi")
            self.assertEqual((status, body), (200, b"user-2-per-1h"))
            self.assertEqual(headers.get_all("RateLimit"), [f'"user-2-per-1h";r={remaining}'])
        self.assert_denied(*self.get(url, "wsgi"))
        status, headers, body = self.get(url, "wsgi", b"x")
        self.assertEqual((status, body, headers["RateLimit"]), (200, b"unlimited", "mine"))

    def test_failures(self) -> None:
        with raw_server(lambda connection: connection.close()) as url:
            client = self.client(url)
            environ: dict[str, Any] = {"REQUEST_METHOD": "GET", "HTTP_X_USER": "x"}
            with self.assertRaises(counterd.UnavailableError):
                self.limit(client)(environ, None)
            self.assertEqual(self.get(self.serve(self.limit(client, on_failure="open")), "x")[2], b"open")
            status, headers, body = self.get(self.serve(self.limit(client, on_failure="closed")), "x")
            self.assertEqual((status, headers["Content-Type"], headers["RateLimit"]), (503, "application/problem+json", None))
            self.assertEqual(json.loads(body)["status"], 503)
        with self.assertRaises(counterd.InvalidError):
            self.limit(self.client(), on_failure="open")({"REQUEST_METHOD": "GET"}, None)

    def test_without_an_address(self) -> None:
        client = self.client()

        def limit(features: Any, **settings: Any) -> Any:
            return WSGIMiddleware(self.hello, client, "address", lambda _: features, **settings)

        for address in NO_ADDRESSES:
            features = {"ip": address}
            with self.assertRaises(counterd.InvalidError):
                limit(features)({}, None)
            self.assertEqual(self.get(self.serve(wsgiref.validate.validator(limit(features, on_failure="open"))))[2], b"open")
            self.assertEqual(self.get(self.serve(limit(features, on_failure="closed")))[0], 503)
            both = WSGIMiddleware(self.hello, client, "two", lambda _: {"ip": address, "user": f"addressless {address}"}, on_failure="open")
            statuses = [self.get(self.serve(both))[0] for _ in range(3)]
            self.assertEqual(statuses, [200, 200, 429], "the other limits decide")
        with self.assertRaises(counterd.InvalidError):  # a client may choose it
            limit({"ip": "garbage"}, on_failure="open")({}, None)
        with self.assertRaises(counterd.InvalidError):
            limit({"ip": None, "user": "x"})({}, None)
        self.assertEqual(self.get(self.serve(limit({"ip": None, "user": "x"}, on_failure="open")))[2], b"open")

    def test_a_value_that_a_client_chooses(self) -> None:
        client = self.client()

        def limit(user: str, ip: str) -> int:
            app = WSGIMiddleware(self.hello, client, "two", lambda _: {"user": user, "ip": ip}, on_failure="open")
            return self.get(self.serve(app))[0]

        for n, value in enumerate(("", "x" * 1025, "\u00e9" * 600, "\ud800")):
            statuses = [limit(value, f"192.0.2.{n}") for _ in range(3)]
            self.assertEqual(statuses, [200, 200, 429], "the limit of the address holds")
        self.assertEqual(limit("x" * 1025, "192.0.2.99"), 429, "the value has a counter")
        self.assertEqual(limit("x" * 1026, "192.0.2.99"), 200, "of its own")

    def test_a_hit_that_never_fits(self) -> None:
        status, headers, body = self.get(self.serve(self.limit(self.client(), cost=lambda _: 3)), "never")
        self.assertEqual((status, headers["Retry-After"]), (429, None))
        self.assertEqual(json.loads(body)["detail"], "Denied by user-2-per-1h: it never fits.")

    def test_a_hit_that_may_fit_before_the_window_ends(self) -> None:
        client = self.client()
        self.assertTrue(all(client.reserve("two", {"user": "may-fit"}, "30s").allowed for _ in range(2)))
        status, headers, body = self.get(self.serve(self.limit(client)), "may-fit")
        problem = json.loads(body)
        self.assertGreater(problem["retry_after"], 3000)
        self.assertEqual((status, headers["Retry-After"], problem["may_fit_after"]), (429, "1", 1))
        self.assertIn("It may fit in 1 second", problem["detail"])

    def test_leases_are_renewed_until_the_body_is_closed(self) -> None:
        client = self.client()
        org = {"org": "wsgi"}
        end = threading.Event()

        def slow(_: Any, start_response: Any) -> Any:
            start_response("200 OK", [("Content-Type", "text/plain")])
            yield b"begin "
            end.wait()
            yield b"end"

        url = self.serve(WSGIMiddleware(slow, client, "lease", lambda _: org))
        self.addCleanup(end.set)
        bodies: list[bytes] = []
        request = threading.Thread(target=lambda: bodies.append(self.get(url)[2]))
        request.start()
        while client.check("lease", org).allowed:
            time.sleep(0.01)
        until = time.monotonic() + 4.5  # longer than the lease
        while time.monotonic() < until:
            self.assertFalse(client.check("lease", org).allowed)
            time.sleep(0.25)
        end.set()
        request.join()
        self.assertEqual(bodies, [b"begin end"])
        while not client.check("lease", org).allowed:
            time.sleep(0.01)

    def test_leases_are_released_if_the_application_raises(self) -> None:
        def fault(*_: Any) -> Any:
            raise OSError("mine")

        client = self.client()
        app = WSGIMiddleware(fault, client, "lease", lambda _: {"org": "wsgi raises"})
        for _ in range(2):
            with self.assertRaisesRegex(OSError, "mine"):
                app({}, None)  # type: ignore[arg-type]
        self.assertTrue(client.check("lease", {"org": "wsgi raises"}).allowed)


class TestASGI(Battery):
    async def get(self, app: Any, user: str | None = None, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """Makes a request as an ASGI server does."""
        headers = [] if user is None else [(b"x-user", user.encode())]
        scope = {"type": "http", "method": method, "headers": headers}
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        self.assertEqual([message["type"] for message in sent], ["http.response.start", "http.response.body"])
        names = [name for name, _ in sent[0]["headers"]]
        self.assertEqual(len(names), len({name.lower() for name in names}))
        return sent[0]["status"], {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}, sent[1]["body"]

    @staticmethod
    async def hello(scope: Any, _: Any, send: Any) -> None:
        decision = scope.get("counterd.decision")
        body = b"unlimited" if decision is None else decision.limits[0].name.encode() if decision.limits else b"open"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"RateLimit", b"mine")]})
        await send({"type": "http.response.body", "body": body})

    def limit(self, client: AsyncClient, **settings: Any) -> ASGIMiddleware:
        return ASGIMiddleware(
            self.hello,
            client,
            lambda scope: None if scope["method"] == "POST" else "two",
            lambda scope: {"user": dict(scope["headers"]).get(b"x-user", b"").decode() or None},
            **settings,
        )

    def test_requests_are_hits(self) -> None:
        async def main() -> None:
            async with AsyncClient(self.server.url, timeout=LONG) as client:
                app = self.limit(client)
                for remaining in (1, 0):
                    status, headers, body = await self.get(app, "asgi")
                    self.assertEqual((status, body), (200, b"user-2-per-1h"))
                    self.assertEqual(headers["ratelimit"], f'"user-2-per-1h";r={remaining}')
                self.assert_denied(*await self.get(app, "asgi"))
                self.assertEqual((await self.get(app, "asgi", "POST"))[1:], ({"ratelimit": "mine"}, b"unlimited"))

        asyncio.run(main())

    def test_other_connections_are_not_limited(self) -> None:
        seen: list[str] = []

        async def app(scope: Any, _receive: Any, _send: Any) -> None:
            seen.append(scope["type"])

        async def main() -> None:
            async with AsyncClient("http://127.0.0.1:1") as client:
                limited = ASGIMiddleware(app, client, "two", lambda _: {})
                for kind in ("lifespan", "websocket"):
                    await limited({"type": kind}, None, None)  # type: ignore[arg-type]

        asyncio.run(main())
        self.assertEqual(seen, ["lifespan", "websocket"])

    def test_failures(self) -> None:
        async def main(url: str) -> None:
            async with AsyncClient(url, timeout=LONG) as client:
                with self.assertRaises(counterd.UnavailableError):
                    await self.get(self.limit(client), "x")
                self.assertEqual((await self.get(self.limit(client, on_failure="open"), "x"))[2], b"open")
                status, headers, body = await self.get(self.limit(client, on_failure="closed"), "x")
                self.assertEqual((status, headers["content-type"]), (503, "application/problem+json"))
                self.assertEqual(json.loads(body)["status"], 503)

        with raw_server(lambda connection: connection.close()) as url:
            asyncio.run(main(url))

    def test_without_an_address(self) -> None:
        async def main() -> None:
            async with AsyncClient(self.server.url, timeout=LONG) as client:
                for address in NO_ADDRESSES:
                    def limit(**settings: Any) -> ASGIMiddleware:
                        return ASGIMiddleware(self.hello, client, "address", lambda _: {"ip": address}, **settings)

                    with self.assertRaises(counterd.InvalidError):
                        await self.get(limit())
                    self.assertEqual((await self.get(limit(on_failure="open")))[2], b"open")
                    self.assertEqual((await self.get(limit(on_failure="closed")))[0], 503)
                both = ASGIMiddleware(self.hello, client, "two", lambda _: {"ip": "", "user": "y" * 2000}, on_failure="open")
                statuses = [(await self.get(both))[0] for _ in range(3)]
                self.assertEqual(statuses, [200, 200, 429])

        asyncio.run(main())

    def test_leases_are_renewed_until_the_application_returns(self) -> None:
        org = {"org": "asgi"}

        async def main() -> None:
            end = asyncio.Event()

            async def slow(scope: Any, receive: Any, send: Any) -> None:
                await end.wait()
                await self.hello(scope, receive, send)

            async def fault(*_: Any) -> None:
                raise OSError("mine")

            async with AsyncClient(self.server.url, timeout=LONG) as client:
                request = asyncio.create_task(self.get(ASGIMiddleware(slow, client, "lease", lambda _: org)))
                while (await client.check("lease", org)).allowed:
                    await asyncio.sleep(0.01)
                until = time.monotonic() + 4.5  # longer than the lease
                while time.monotonic() < until:
                    self.assertFalse((await client.check("lease", org)).allowed)
                    await asyncio.sleep(0.25)
                end.set()
                self.assertEqual((await request)[0], 200)
                for _ in range(2):
                    with self.assertRaisesRegex(OSError, "mine"):
                        await self.get(ASGIMiddleware(fault, client, "lease", lambda _: org))
                self.assertTrue((await client.check("lease", org)).allowed)

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
