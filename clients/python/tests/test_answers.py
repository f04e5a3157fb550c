"""The cases of all clients, clients/testdata/answers.json, with a transport of the test's own."""

from __future__ import annotations

import contextlib
import json
import unittest
from collections.abc import Iterator
from typing import Any

import counterd
from counterd import CounterdError, Decision, Hit
from counterd.protocol import Answer, read_answer

from .support import CLIENTS, PACKAGE

CASES = json.loads((PACKAGE.parent / "testdata" / "answers.json").read_text())["cases"]
USER = {"user": "42"}
CALLS = {
    "hit": lambda client, _: client.hit("api", USER),
    "reserve": lambda client, _: client.reserve("api", USER, "1m"),
    "check": lambda client, _: client.check("api", USER),
    "batch": lambda client, hits: client.batch([Hit("api", USER)] * hits),
    "settle": lambda client, _: client.settle("r", 1),
    "renew": lambda client, _: client.renew("r", "1m"),
    "increment": lambda client, _: client.increment("api", USER),
    "count": lambda client, _: client.count("api", USER, "1h"),
}
KINDS = {
    counterd.InvalidError: "invalid",
    counterd.RefusedError: "refused",
    counterd.UnknownEventError: "unknown",
    counterd.SettledError: "conflict",
    counterd.EndedError: "ended",
    counterd.UnavailableError: "unavailable",
    counterd.UnexpectedError: "unexpected",
}


def answers(case: Any) -> Iterator[tuple[int, str, str] | None]:
    """Returns the status, the media type and the body of each answer of a case. None: there is no answer."""
    if "statuses" not in case:
        yield None
    body = case.get("body", "")
    text = body if isinstance(body, str) else json.dumps(body)
    for status in case.get("statuses", ()):
        usual = "application/json" if status < 300 else "application/problem+json"
        for media in case.get("types", [usual]):
            for each in case.get("each", ["EACH"]):
                yield status, media, text.replace('"EACH"', each).replace("EACH", each)


class TestAnswers(unittest.TestCase):
    def outcome(self, case: Any, answer: Any, result: Any) -> Any:
        """Names what became of a call, as the table does."""
        if isinstance(result, list):
            return [self.outcome(case, None, one) for one in result]
        if isinstance(result, Decision):
            return "admitted" if result.allowed else "denied"
        if not isinstance(result, CounterdError):
            return "done"
        kind = KINDS[type(result)]
        maybe_counted = case.get("maybe_counted", kind in ("unavailable", "unexpected"))
        self.assertEqual(result.maybe_counted, maybe_counted)
        if answer is not None:
            self.assertEqual(result.status, answer[0])
            refusal = [False] if case.get("refusal") else []
            self.assertEqual([decision.allowed for decision in [result.decision] if decision], refusal)
        return kind

    def run_cases(self, kind: str) -> None:
        answer: Any = None

        def exchange() -> Answer:
            if answer is None:
                raise counterd.UnavailableError("the connection is lost", maybe_counted=True)
            status, media, text = answer
            return read_answer(status, media or None, text.encode(), None)

        async def exchange_later() -> Answer:
            return exchange()

        with contextlib.closing(CLIENTS[kind]("http://counterd.test")) as client:
            if kind == "threads":
                client._connections.exchange = lambda operation, deadline: exchange()
            else:
                client.client._streams.exchange = lambda operation: exchange_later()
            for case in CASES:
                for answer in answers(case):
                    for call in case.get("calls", CALLS):
                        with self.subTest(case["name"], call=call, answer=answer):
                            try:
                                result = CALLS[call](client, case.get("hits", 1))
                            except CounterdError as error:
                                result = error
                            self.assertEqual(self.outcome(case, answer, result), case["outcome"])

    def test_threads(self) -> None:
        self.run_cases("threads")

    def test_asyncio(self) -> None:
        self.run_cases("asyncio")


if __name__ == "__main__":
    unittest.main()
