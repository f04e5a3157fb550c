import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, fetchMiddleware, rateLimitHeaders, type Decision } from "counterd";

/** A decision with a limit of leases, or another one. */
function decisionWith(window: string, algorithm?: string): Decision {
  const limit = { name: "n", feature: "", limit: 1, window, count: 1, remaining: 0, reset: 0, allowed: true };
  const limits = [algorithm === undefined ? limit : { ...limit, algorithm }];
  return { allowed: true, event: "api", at: "2026-11-21T04:52:30Z", retry_after: 0, reservation: "r", limits };
}

test("windows are parsed strictly", () => {
  const windows: Record<string, number | undefined> = {
    "1s": 1, "90s": 90, "15m": 900, "24h": 86_400, "30d": 2_592_000, "1h30m": 5_400, month: undefined, "": undefined,
    "1": undefined, s: undefined, "-1s": undefined, "1.5s": undefined, "1 s": undefined, "1s\n": undefined,
    "\u0661s": undefined, "99999999s": undefined, [`${"9".repeat(5_000)}s`]: undefined, ["1s".repeat(60_000)]: undefined,
  };
  for (const [window, seconds] of Object.entries(windows)) {
    const policy = rateLimitHeaders(decisionWith(window))["RateLimit-Policy"];
    assert.equal(policy, `"n";q=1${seconds === undefined ? "" : `;w=${seconds}`}`, window.slice(0, 9));
  }
});

test("a long window takes no long time", () => {
  // Quadratic parsing takes 16 s of CPU for these.
  const before = process.cpuUsage();
  rateLimitHeaders(decisionWith("9".repeat(100_000)));
  const { user } = process.cpuUsage(before);
  assert.ok(user < 5_000_000, `${user} \u00b5s`);
});

test("at least a second is between renewals of a lease, and one renewal at a time", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const settled = async (): Promise<void> => {
    for (let i = 0; i < 20; i++) {
      await new Promise(setImmediate); // more turns of the loop than an exchange needs
    }
  };
  for (const [window, renewals] of [["0s", 3], ["1s", 3], ["month", 3], ["9s", 1], ["9999999d", 0]] as const) {
    let renewed = 0;
    const answer = async (_: unknown, init?: RequestInit): Promise<Response> => {
      const body = String(init?.body);
      renewed += Number(body.includes("renew"));
      return Response.json(
        body.includes("renew")
          ? { reservation: "r" }
          : body.includes("reservation")
            ? { settled: true }
            : decisionWith(window, "concurrency"),
      );
    };
    const client = new Client({ url: "http://counterd.test", fetch: answer as typeof fetch });
    let end = (): void => undefined;
    const handled = new Promise<void>((resolve) => (end = resolve));
    const limited = fetchMiddleware(client, { event: "api", features: () => ({ user: "x" }) });
    const response = limited(async () => {
      await handled;
      return new Response("done");
    })(new Request("http://service.example/"));
    await settled();
    for (let n = 0; n < 35; n++) {
      t.mock.timers.tick(100);
      await settled();
    }
    end();
    await response;
    assert.equal(renewed, renewals, `${window} in 3.5 s`);
  }
});
