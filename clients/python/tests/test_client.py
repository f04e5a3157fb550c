"""Both clients against a real counterd."""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime
import json
import os
import threading
import time
import unittest
import urllib.error
import urllib.request
from typing import Any, ClassVar
from unittest import mock

import counterd
from counterd import AsyncClient, Client, CounterdError, Hit, protocol, rate_limit_headers
from counterd.decisions import read_decision

from .support import CLIENTS, LONG, Counterd, Relay


class Battery:
    """The tests of both clients."""

    kind: ClassVar[str]
    server: ClassVar[Counterd]

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Counterd()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.stop()

    def client(self, url: str | None = None, **settings: Any) -> Any:
        settings.setdefault("timeout", LONG)
        client = CLIENTS[self.kind](url or self.server.url, **settings)
        self.addCleanup(client.close)
        return client

    def key(self, name: str) -> str:
        return f"{self.kind} {name}"

    def test_hit_check_and_count_agree(self) -> None:
        client = self.client()
        user = {"user": self.key("agree"), "ip": None}
        self.assertFalse(client.check("two", user, 3).allowed)
        for allowed in (True, True, False):
            self.assertEqual(client.check("two", user).allowed, allowed)
            decision = client.hit("two", user)
            self.assertEqual((decision.allowed, decision.event, decision.failed), (allowed, "two", None))
            self.assertEqual(decision.limits[0].name, "user-2-per-1h")
        self.assertEqual(client.count("two", user, "1h"), 2)
        never = client.hit("two", user, cost=3)
        self.assertEqual((never.allowed, never.retry_after), (False, None))

    def test_increments(self) -> None:
        client = self.client()
        user = {"user": self.key("increment")}
        now = datetime.datetime.now(datetime.timezone.utc)
        client.increment("api", user, 5)
        client.increment("api", user, at=now - datetime.timedelta(minutes=30))
        self.assertEqual(client.count("api", user, "1h"), 6)
        self.assertEqual(client.count("api", user, "1m", at=now - datetime.timedelta(minutes=20)), 0)

    def test_reservations(self) -> None:
        client = self.client()
        user = {"user": self.key("settle")}
        estimate = client.reserve("tokens", user, "30s", cost=500)
        self.assertEqual(client.count("tokens", user, "24h"), 500)
        client.settle(estimate.reservation, 312)
        client.settle(estimate.reservation, 312)
        self.assertEqual(client.count("tokens", user, "24h"), 312)
        with self.assertRaises(counterd.SettledError):
            client.settle(estimate.reservation, 1)
        client.release(client.reserve("tokens", user, "30s", cost=600).reservation)
        self.assertEqual(client.count("tokens", user, "24h"), 312)
        with self.assertRaises(counterd.InvalidError):
            client.settle("no reservation", 1)

        org = {"org": self.key("renew")}
        lease = client.hit("lease", org)
        self.assertFalse(client.hit("lease", org).allowed)
        renewed = client.renew(lease.reservation, "3s")
        client.release(renewed)
        self.assertTrue(client.hit("lease", org).allowed)
        with self.assertRaises(counterd.EndedError):
            client.renew(renewed, "3s")

    def test_a_batch_has_a_result_for_each_hit(self) -> None:
        client = self.client()
        user = {"user": self.key("batch")}
        results = client.batch(
            [Hit("two", user, 2), Hit("two", user), Hit("absent", user), Hit("two", {**user, "ip": "nowhere"}), Hit("two", user, -1)]
        )
        kinds = [type(result) if isinstance(result, CounterdError) else result.allowed for result in results]
        self.assertEqual(kinds, [True, False, counterd.UnknownEventError, counterd.InvalidError, counterd.InvalidError])
        self.assertEqual(results[3].faults[0].pointer, "/hits/3/features/ip")
        self.assertFalse(results[3].maybe_counted)
        with self.assertRaises(counterd.InvalidError):
            client.batch([])

    def test_features_are_sent_as_they_are(self) -> None:
        client = self.client()
        for value in ("../../x", "a/b?c=d&e#f", "100%", "a+b c", "ü✓😀", 'quote"\\', "%2F", ":", "\x01"):
            user = {"user": self.key(value)}
            for n in (1, 2):
                client.batch([Hit("api", user), Hit("api", {"user": self.key("other " + value)})])
                self.assertEqual(client.count("api", user, "1h"), n, value)
                self.assertEqual(client.check("api", user).limits[0].count, n, value)

    def test_a_hit_with_a_fault_is_refused_alone(self) -> None:
        anything: Any = ["x"]
        relay = self.relay()
        relay.gate.clear()
        client = self.client(relay.url)
        hits = [
            lambda: client.hit("two", {"user": "x", "ip": "nowhere"}),
            lambda: client.hit("two", {"User": "x"}),
            lambda: client.hit("two", {"user": "x"}, -1),
            lambda: client.hit("two", {"user": "x"}, 1.5),
            lambda: client.hit("two", {"user": "x"}, True),
            lambda: client.hit("two", {"user": "x"}, 10**30),
            lambda: client.hit("two", {"user": "x"}, "1"),
            lambda: client.hit("two", {"user": 1}),
            lambda: client.hit("two", {1: "x"}),
            lambda: client.hit("two", anything),
            lambda: client.hit("two", {"user": "\ud800"}),
            lambda: client.check("two", {"user": "\ud800"}),
            lambda: client.hit("two", {f"k{i}": "x" for i in range(16_001)}),
            lambda: client.hit("../two", {"user": "x"}),
            lambda: client.hit("two\n", {"user": "x"}),
            lambda: client.hit(None, {"user": "x"}),
            lambda: client.reserve("two", {"user": "x"}, 30),
            lambda: client.reserve("two", {"user": "x"}, "thirty"),
            lambda: client.hit("two", {"user": "x"}, timeout=0),
        ]
        good = [lambda user=user: client.hit("two", {"user": self.key(user)}) for user in "ab"]
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            faults = [pool.submit(hit) for hit in hits]
            unknown = pool.submit(client.hit, "absent", {"user": "x"})
            admitted = [pool.submit(hit) for hit in good]
            relay.reached()
            relay.gate.set()
            for n, fault in enumerate(faults):
                self.assertIsInstance(fault.exception(), counterd.InvalidError, n)
            self.assertIsInstance(unknown.exception(), counterd.UnknownEventError)
            self.assertEqual([hit.result().allowed for hit in admitted], [True, True])

    def relay(self, url: str | None = None) -> Relay:
        relay = Relay(url or self.server.url)
        self.addCleanup(relay.__exit__)
        return relay

    def test_200_concurrent_hits_of_a_limit_of_50(self) -> None:
        relay = self.relay()
        client = self.client(relay.url)
        user = {"user": self.key("oracle")}
        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            decisions = list(pool.map(lambda _: client.hit("fifty", user), range(200)))
        self.assertEqual(sum(decision.allowed for decision in decisions), 50)
        self.assertLess(len(relay.seen), 150)
        self.assertEqual(client.count("fifty", user, "1h"), 50)

    def test_hits_are_alone_if_they_do_not_coalesce(self) -> None:
        relay = self.relay()
        alone = self.client(relay.url, coalesce=False)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: alone.hit("api", {"key": "1"}), range(8)))
        self.assertEqual({path for path, _ in relay.seen}, {"/v1/events/api/hit"})
        self.assertEqual(len(relay.seen), 8)

    def held(self) -> None:
        """Has hits wait for an exchange that is under way, however long it takes."""
        self.enterContext(mock.patch.object(protocol, "hold", lambda _: LONG))

    def queued(self, client: Any, n: int) -> None:
        """Waits until so many hits are queued."""
        while len(getattr(client, "client", client)._coalescer._queue) != n:
            time.sleep(0.001)

    def test_errors_do_not_show_that_hits_went_together(self) -> None:
        self.held()
        relay = self.relay()
        relay.gate.clear()
        client, alone = self.client(relay.url), self.client(coalesce=False)
        user = {"user": "x"}
        faults = [("two", user, -1), ("two", {"User": "x"}), ("absent", user), ("two", {"ip": "nowhere"}, -1)]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            first = pool.submit(client.hit, "api", {"key": "0"})
            relay.reached()
            hits = []
            for i, fault in enumerate(faults, 1):
                hits.append(pool.submit(client.hit, *fault))
                self.queued(client, i)
            relay.gate.set()
            self.assertTrue(first.result().allowed)
            errors = [hit.exception() for hit in hits]
        self.assertEqual([path for path, _ in relay.seen], ["/v1/events/api/hit", "/v1/batch"])
        self.assertEqual(errors[0].faults, (counterd.Fault("it is 0 to 1000000", "/cost"),))
        for fault, error in zip(faults, errors):
            with self.assertRaises(CounterdError) as caught:
                alone.hit(*fault)
            self.assertEqual((str(error), error.faults), (str(caught.exception), caught.exception.faults))
        asked = client.batch([Hit("api", {"key": "0"}), Hit(*faults[0])])[1]
        self.assertIn("/hits/1/cost: ", str(asked))
        self.assertEqual([fault.pointer for fault in asked.faults], ["/hits/1/cost"])

    def test_a_hit_returns_at_its_turn(self) -> None:
        client = self.client()
        waits = []
        for _ in range(3):
            begin = time.monotonic()
            decision = client.hit("queue", {"key": self.key("turn")})
            self.assertTrue(decision.allowed)
            self.assertGreaterEqual(time.monotonic() - begin, decision.wait - 0.001)
            waits.append(decision.wait)
        self.assertGreater(max(waits), 0)

    def test_a_turn_is_given_back(self) -> None:
        client = self.client(timeout=20)
        late, many = ({"key": self.key(name)} for name in ("late", "many"))

        def remaining(key: Any) -> int:
            return int(client.check("slow_queue", key).limits[0].remaining)

        client.hit("slow_queue", late)
        self.assertEqual(remaining(late), 5)
        with self.assertRaises(counterd.UnavailableError) as caught:
            client.hit("slow_queue", late)
        self.assertFalse(caught.exception.maybe_counted)
        self.assertFalse(caught.exception.decision.allowed)
        self.assertEqual(remaining(late), 5)
        for on_failure in ("open", "closed"):
            denied = client.hit("slow_queue", late, on_failure=on_failure)
            self.assertEqual((denied.allowed, type(denied.failed)), (False, counterd.UnavailableError))
            self.assertEqual(rate_limit_headers(denied), {})
        self.assertEqual(remaining(late), 5)

        none = self.client(max_waiting=0)
        none.hit("slow_queue", many)
        decision = none.hit("slow_queue", many)
        self.assertGreater(decision.wait, 20)
        none.release(decision.reservation)
        self.assertEqual(remaining(many), 5)

    def test_too_many_hits_wait(self) -> None:
        client = self.client(max_waiting=1)
        key = {"key": self.key("too many")}
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            outcomes = [hit.exception() for hit in [pool.submit(client.hit, "queue", key) for _ in range(6)]]
        faults = [fault for fault in outcomes if fault is not None]
        self.assertTrue(faults)
        self.assertTrue(all("too many hits wait" in str(fault) for fault in faults), faults)


class TestThreads(Battery, unittest.TestCase):
    kind = "threads"

    def test_an_interrupted_caller_leaves_the_others_served(self) -> None:
        self.held()

        class Interrupt(BaseException):
            pass

        relay = self.relay()
        client = self.client(relay.url)
        exchange, interrupted = client._connections.exchange, threading.Event()

        def interrupt_once(operation: Any, deadline: Any) -> Any:
            if not interrupted.is_set():
                interrupted.set()
                self.queued(client, 2)
                raise Interrupt
            return exchange(operation, deadline)

        client._connections.exchange = interrupt_once
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            hits = [pool.submit(client.hit, "api", {"key": str(i)}) for i in range(3)]
            outcomes = [type(hit.exception()) for hit in hits]
        self.assertEqual(sorted(outcomes, key=str), sorted([Interrupt, type(None), type(None)], key=str))
        self.assertTrue(client.hit("api", {"key": "3"}).allowed)

    def test_a_forked_process_has_connections_of_its_own(self) -> None:
        relay = self.relay()
        relay.gate.clear()
        client = self.client(relay.url)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            hit = pool.submit(client.hit, "api", {"key": "0"})
            relay.reached()
            # An exchange is under way in another thread, which the child does not have.
            child = os.fork()
            if child == 0:
                try:
                    os._exit(0 if client.hit("api", {"key": "1"}).allowed else 1)
                finally:
                    os._exit(2)
            relay.reached(2)
            relay.gate.set()
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertTrue(hit.result().allowed)


class TestAsyncio(Battery, unittest.TestCase):
    kind = "asyncio"

    def test_hits_of_one_pass_of_the_loop_go_together_in_order(self) -> None:
        relay = self.relay()

        async def main() -> list[counterd.Decision]:
            async with AsyncClient(relay.url, timeout=LONG) as client:
                return await asyncio.gather(*(client.hit("fifty", {"user": "asyncio order"}) for _ in range(200)))

        self.assertEqual([decision.allowed for decision in asyncio.run(main())], [i < 50 for i in range(200)])
        self.assertEqual(len(relay.seen), 1)

    def test_a_batch_is_half_of_what_the_server_reads(self) -> None:
        relay = self.relay()

        async def main() -> None:
            async with AsyncClient(relay.url, timeout=LONG) as client:
                await asyncio.gather(*(client.hit("api", {"user": "ü" * 510, "key": str(i)}) for i in range(2000)))

        asyncio.run(main())
        self.assertEqual(sum(map(len, relay.keys())), 2000)
        sizes = [len(body.encode()) for _, body in relay.seen]
        self.assertGreater(max(sizes), 510 << 10)  # one hit fewer would be
        self.assertLessEqual(max(sizes), 512 << 10)

    def test_a_canceled_hit_gives_its_turn_back(self) -> None:
        key = {"key": "asyncio canceled"}

        async def main() -> None:
            async with AsyncClient(self.server.url, timeout=10 * LONG) as client:

                async def remaining() -> int:
                    return (await client.check("slow_queue", key)).limits[0].remaining

                await client.hit("slow_queue", key)
                hit = asyncio.create_task(client.hit("slow_queue", key))
                while client._waiting == 0:
                    await asyncio.sleep(0.001)
                self.assertEqual(await remaining(), 4)
                hit.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await hit
                self.assertEqual(await remaining(), 5)

        asyncio.run(main())

    def test_a_client_may_change_its_event_loop(self) -> None:
        client = AsyncClient(self.server.url, timeout=LONG)
        for _ in range(3):
            self.assertTrue(asyncio.run(client.hit("api", {"key": "loops"})).allowed)

    def test_a_token_may_be_awaited(self) -> None:
        async def token() -> str:
            return "unknown-token-16"

        async def main() -> None:
            async with AsyncClient(self.server.url, token=token, timeout=LONG) as client:
                self.assertTrue((await client.hit("api", {"key": "token"})).allowed)

        asyncio.run(main())


class TestHeaders(unittest.TestCase):
    def test_they_are_those_of_counterd(self) -> None:
        variants = [
            {"user": "h"},
            {"user": "h", "ip": "2001:db8::1", "key": "h"},
            {"org": "h"},
            {"user": "h", "zero": "z"},
            {"ip": "203.0.113.9", "org": "h"},
        ]
        denied = 0
        with Counterd() as server:
            for features in variants * 5:
                data = json.dumps({"features": features}).encode()
                request = urllib.request.Request(
                    server.url + "/v1/events/many/hit", data, {"Content-Type": "application/json"}
                )
                try:
                    answer: Any = urllib.request.urlopen(request)
                except urllib.error.HTTPError as error:
                    answer = error
                    denied += 1
                with answer:
                    decision = read_decision(json.load(answer))
                    assert decision is not None
                    own = rate_limit_headers(decision)
                    for name in ("RateLimit-Policy", "RateLimit", "Retry-After"):
                        self.assertEqual(own.get(name), answer.headers.get(name), features)
            self.assertGreater(denied, 5)
            with Client(server.url, timeout=LONG) as client:
                own = rate_limit_headers(client.hit("month", {"user": "h"}))
        self.assertEqual(
            own, {"RateLimit-Policy": '"user-1000-per-month";q=1000', "RateLimit": '"user-1000-per-month";r=999'}
        )


class TestAddresses(unittest.TestCase):
    def test_urls(self) -> None:
        for wrong in ("", "127.0.0.1:8080", "ftp://x", "http://a:b@x", "http://x?y", "http://x#y", "http://x:y", "http://x y", "http://x..y", None):
            with self.assertRaises(counterd.InvalidError):
                protocol.parse_url(wrong)  # type: ignore[arg-type]
        address = protocol.parse_url("https://[::1]/prefix/")
        self.assertEqual(address, protocol.Address(True, "::1", 443, "/prefix", "[::1]"))


if __name__ == "__main__":
    unittest.main()
