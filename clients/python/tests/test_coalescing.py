"""The cases of all clients, clients/testdata/coalescing.json, with a transport and a clock that the test moves."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import threading
import time
import types
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

import counterd
from counterd import AsyncClient, Client, Decision, protocol, sync
from counterd.connections import Deadline
from counterd.protocol import Answer, Operation, read_answer

from .support import LONG, PACKAGE

CASES = json.loads((PACKAGE.parent / "testdata" / "coalescing.json").read_text())["cases"]
ADMITTED = {"status": 200, "allowed": True, "at": "2026-11-21T04:52:30Z", "retry_after": 0, "limits": []}
KINDS = {
    counterd.InvalidError: "invalid",
    counterd.RefusedError: "refused",
    counterd.UnknownEventError: "unknown",
    counterd.UnexpectedError: "unexpected",
}


def counted(texts: list[str]) -> list[str]:
    """Returns the texts, those in a row that are equal as one with their number."""
    runs = [(text, len(list(run))) for text, run in itertools.groupby(texts)]
    return [text if n == 1 else f"{n}*{text}" for text, n in runs]


def outcome(name: str, result: Decision | BaseException) -> str:
    """Names what became of a call, as the table does."""
    if isinstance(result, asyncio.CancelledError):
        return "left"
    if isinstance(result, counterd.UnavailableError):
        return "unavailable" if result.maybe_counted else "not sent"
    if isinstance(result, counterd.CounterdError) and "/hits/" not in str(result):
        return " ".join([KINDS[type(result)], *(fault.pointer for fault in result.faults)])
    return "admitted" if isinstance(result, Decision) and result.allowed and result.event == name else repr(result)


class Exchange:
    """An exchange, until a step ends it."""

    def __init__(self, operation: Operation[Any]) -> None:
        body = json.loads(operation.body or b"")
        self.hits = [hit["features"]["user"] for hit in body.get("hits", [body])]
        alone = len(self.hits) == 1
        self.name = " ".join(counted(self.hits))
        if operation.path != ("/v1/events/api/hit" if alone else "/v1/batch"):
            self.name += f" by {operation.path}"
        self.end: Any = None

    def answer(self) -> Answer:
        if self.end.get("broken"):
            raise counterd.UnavailableError("the exchange failed", maybe_counted=True)
        if "status" in self.end:
            page = b"<html>" if self.end.get("foreign") else b'{"title":"Any"}'
            return read_answer(self.end["status"], "application/problem+json", page, None)
        own = self.end.get("results", {})
        results = [own.get(hit, {**ADMITTED, "event": hit}) for hit in self.hits]
        return Answer(200, results[0] if len(results) == 1 else {"results": results}, None)


class Driver:
    """Takes the steps of a case with a client: call, leave, settle and close are its own."""

    def __init__(self, case: Any) -> None:
        self.now = 0.0
        self.log: list[str] = []  # what has happened, as in "sends a b", "cancels a b", "a is admitted"
        self.exchanges: dict[str, Exchange] = {}

    def take(self, step: Any) -> list[str]:
        """Takes a step, and returns what has happened when all that it leads to has."""
        self.log.clear()
        if "call" in step:
            for _ in range(step.get("times", 1)):
                self.call(step["call"], step.get("timeout"))
                self.settle()
        elif "end" in step:
            self.exchanges[step["end"]].end = step
        elif "leave" in step:
            self.leave(step["leave"])
        else:
            self.now += step["pass"]
        self.settle()
        return sorted(counted(sorted(self.log)))

    def begin(self, operation: Operation[Any]) -> Exchange:
        exchange = Exchange(operation)
        self.exchanges[exchange.name] = exchange
        self.log.append(f"sends {exchange.name}")
        return exchange


class Loop(Driver):
    """Drives the client for asyncio. Its loop runs in settle."""

    def __init__(self, case: Any) -> None:
        super().__init__(case)
        self._loop = asyncio.new_event_loop()
        self._client = AsyncClient("http://counterd.test", timeout=case.get("timeout", 10))
        self._client._streams.exchange = self._exchange  # type: ignore[method-assign]
        self._tasks: dict[str, asyncio.Task[Decision]] = {}

    async def _exchange(self, operation: Operation[Any]) -> Answer:
        exchange = self.begin(operation)
        try:
            while exchange.end is None:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.log.append(f"cancels {exchange.name}")
            raise
        return exchange.answer()

    def call(self, name: str, timeout: float | None) -> None:
        async def call() -> None:
            try:
                result: Any = await self._client.hit("api", {"user": name}, timeout=timeout)
            except BaseException as error:
                result = error
            self.log.append(f"{name} is {outcome(name, result)}")

        self._tasks[name] = self._loop.create_task(call())

    def leave(self, name: str) -> None:
        self._tasks[name].cancel()

    def settle(self) -> None:
        async def settle() -> None:
            for _ in range(20):  # more passes of the loop than a step needs
                await asyncio.sleep(0)

        self._loop.run_until_complete(settle())

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self.settle()
        self._loop.close()


class Threads(Driver):
    """Drives the client for threads. Each runs until it waits for an event, or for the end of its exchange."""

    LEAVING = 0.001  # how long a caller takes to leave, by its deadline

    def __init__(self, case: Any) -> None:
        super().__init__(case)
        self._client = Client("http://counterd.test", timeout=case.get("timeout", 10))
        self._client._connections.exchange = self._exchange  # type: ignore[method-assign]
        self._threads: list[threading.Thread] = []
        self._idle = threading.Condition()
        self._running = 0
        self._blocked: list[tuple[Callable[[], bool], threading.Event]] = []
        self._leaves: dict[str, float] = {}  # how long after its call
        now, called = 0.0, {}
        for step in case["steps"]:
            if "call" in step:
                called[step["call"]] = now
            elif "leave" in step:
                self._leaves[step["leave"]] = now + self.LEAVING / 2 - called[step["leave"]]
                now += self.LEAVING
            now += step.get("pass", 0)

    def block(self, ready: Callable[[], bool]) -> None:
        with self._idle:
            if ready():
                return
            woken = threading.Event()
            self._blocked.append((ready, woken))
            self._running -= 1
            self._idle.notify()
        woken.wait()

    def wake(self) -> None:
        """Has the threads run on that are ready to."""
        with self._idle:
            for blocked in [blocked for blocked in self._blocked if blocked[0]()]:
                self._blocked.remove(blocked)
                self._running += 1
                blocked[1].set()

    def _exchange(self, operation: Operation[Any], deadline: Deadline) -> Answer:
        exchange = self.begin(operation)
        self.block(lambda: exchange.end is not None or deadline.left() == 0)
        if exchange.end is None:
            self.log.append(f"cancels {exchange.name}")
            raise protocol.no_answer(deadline.timeout)
        return exchange.answer()

    def call(self, name: str, timeout: float | None) -> None:
        def call() -> None:
            try:
                result: Any = self._client.hit("api", {"user": name}, timeout=self._leaves.get(name, timeout))
            except BaseException as error:
                result = error
            left = name in self._leaves and isinstance(result, counterd.UnavailableError)
            self.log.append(f"{name} is {'left' if left else outcome(name, result)}")
            with self._idle:
                self._running -= 1
                self._idle.notify()

        with self._idle:
            self._running += 1
        self._threads.append(threading.Thread(target=call, daemon=True))
        self._threads[-1].start()

    def leave(self, name: str) -> None:
        self.now += self.LEAVING

    def settle(self) -> None:
        self.wake()
        with self._idle:
            if not self._idle.wait_for(lambda: self._running == 0, LONG):
                raise AssertionError("a thread does not wait")
        if any(pending.gone for pending in self._client._coalescer._queue):
            raise AssertionError("a hit is queued whose caller has left")

    def close(self) -> None:
        self.now = math.inf
        self.wake()
        for thread in self._threads:
            thread.join(LONG)


class Event:
    """What the client for threads takes for a threading.Event."""

    def __init__(self, driver: Threads) -> None:
        self._driver = driver
        self._set = False

    def set(self) -> None:
        self._set = True
        self._driver.wake()

    def wait(self, timeout: float) -> None:
        end = self._driver.now + timeout
        self._driver.block(lambda: self._set or self._driver.now >= end)


class TestCoalescing(unittest.TestCase):
    def run_cases(self, kind: type[Driver]) -> None:
        for case in CASES:
            driver = kind(case)
            own = types.SimpleNamespace(**{**vars(threading), "Event": lambda driver=driver: Event(driver)})
            clock = mock.patch("time.monotonic", lambda driver=driver: driver.now)
            events = mock.patch.object(sync, "threading", own)
            with self.subTest(case["name"]), clock, events, contextlib.closing(driver):
                for step in case["steps"]:
                    want = [f"{verb} {name}" for verb in ("sends", "cancels") for name in step.get(verb, [])]
                    want += [f"{name} is {became}" for name, became in step.get("returns", {}).items()]
                    self.assertEqual(driver.take(step), sorted(want), step)

    def test_threads(self) -> None:
        self.run_cases(Threads)

    def test_asyncio(self) -> None:
        self.run_cases(Loop)


class TestCallersThatLeave(unittest.IsolatedAsyncioTestCase):
    async def test_what_their_hits_get_is_given_back(self) -> None:
        loop = asyncio.get_running_loop()
        faults: list[Any] = []
        loop.set_exception_handler(lambda _, fault: faults.append(fault))
        asked: list[Operation[Any]] = []
        ends: list[asyncio.Future[Answer]] = []

        async def exchange(operation: Operation[Any]) -> Answer:
            asked.append(operation)
            ends.append(loop.create_future())
            answer = await ends[-1]
            if len(asked) == 2:
                loop.call_soon(loop.call_soon, hits["last"].cancel)  # when it is decided, before it knows
            return answer

        def leased(name: str) -> dict[str, Any]:
            return {**ADMITTED, "event": "lease", "reservation": f"of {name}"}

        async def settle() -> None:
            for _ in range(20):  # more passes of the loop than a step needs
                await asyncio.sleep(0)

        client = AsyncClient("http://counterd.test")
        client._streams.exchange = exchange  # type: ignore[method-assign]
        hits = {"first": asyncio.create_task(client.hit("lease", {"user": "first"}))}
        await settle()
        for name in ("left", "failed", "last", "stays"):
            hits[name] = asyncio.create_task(client.hit("lease", {"user": name}, timeout=LONG))
        await settle()
        ends[0].set_result(Answer(200, leased("first"), None))
        await settle()
        hits["left"].cancel()
        hits["failed"].cancel()
        results = [leased("left"), {"status": 404, "title": "Any"}, leased("last"), leased("stays")]
        ends[1].set_result(Answer(200, {"results": results}, None))
        await settle()
        for name in ("left", "failed", "last"):
            self.assertTrue(hits[name].cancelled())
        self.assertEqual([(await hits[name]).reservation for name in ("first", "stays")], ["of first", "of stays"])
        self.assertEqual(
            [(operation.path, json.loads(operation.body or b"")) for operation in asked[2:]],
            [("/v1/settle", {"reservation": f"of {name}", "cost": 0}) for name in ("left", "last")],
        )
        for end in ends[2:]:
            end.set_result(Answer(410, {"title": "Gone"}, None))
        await settle()
        self.assertEqual((len(asked), client._coalescer._giving_back, faults), (4, set(), []))

class TestInterruptedCallers(unittest.TestCase):
    def test_a_batch_that_was_sent_is_not_sent_again(self) -> None:
        asked: list[Operation[Any]] = []
        first = threading.Event()

        def exchange(operation: Operation[Any], deadline: Deadline) -> Answer:
            asked.append(operation)
            if len(asked) == 1:
                first.wait(LONG)
                return Answer(200, {**ADMITTED, "event": "login"}, None)
            return Answer(200, {"results": [{**ADMITTED, "event": "login"}] * 2}, None)

        client = Client("http://counterd.test", timeout=LONG)
        client._connections.exchange = exchange  # type: ignore[method-assign]
        coalescer: Any = client._coalescer
        end, results = coalescer._end, []

        def interrupted(batch: Any, outcomes: Any) -> None:
            if len(asked) == 2 and coalescer._end is interrupted:  # as the outcomes are to be handed on
                coalescer._end = end
                raise KeyboardInterrupt
            end(batch, outcomes)

        coalescer._end = interrupted

        def hit() -> None:
            try:
                results.append(client.hit("login", {"user": "42"}))
            except BaseException as error:
                results.append(error)

        threads = [threading.Thread(target=hit) for _ in range(3)]
        threads[0].start()
        while not asked:
            time.sleep(0.001)
        for thread in threads[1:]:
            thread.start()
        while len(coalescer._queue) < 2:
            time.sleep(0.001)
        first.set()
        for thread in threads:
            thread.join()
        self.assertEqual([operation.path for operation in asked], ["/v1/events/login/hit", "/v1/batch"])
        kinds = sorted(type(result).__name__ for result in results)
        self.assertEqual(kinds, ["Decision", "KeyboardInterrupt", "UnavailableError"])
        self.assertTrue(all(result.maybe_counted for result in results if isinstance(result, counterd.CounterdError)))


if __name__ == "__main__":
    unittest.main()
