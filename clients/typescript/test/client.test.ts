import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  Client,
  CounterdError,
  rateLimitHeaders,
  type DecideOptions,
  type Decision,
  type Features,
} from "counterd";
import { closedGate, startCounterd, startRelay, until, untilWaiting } from "./support.js";

const server = await startCounterd();

const clientOf = (url = server.url, options = {}): Client => new Client({ url, timeout: 60_000, ...options });
const isKind = (kind: string) => (error: unknown) => error instanceof CounterdError && error.kind === kind;

test("hit, check and count agree, and a denial is no error", async () => {
  const client = clientOf();
  const user = { user: "agree" };
  assert.equal((await client.check("two", user, { cost: 3 })).allowed, false);
  for (const allowed of [true, true, false]) {
    assert.equal((await client.check("two", user)).allowed, allowed);
    const decision = await client.hit("two", user);
    assert.equal(decision.allowed, allowed);
    assert.equal(decision.event, "two");
    assert.equal(decision.limits[0]?.name, "user-2-per-1h");
    assert.equal(decision.failed, undefined);
  }
  assert.equal(await client.count("two", user, "1h"), 2);
  const never = await client.hit("two", user, { cost: 3 });
  assert.deepEqual([never.allowed, never.retry_after], [false, null]);
});

test("increments count now and at a moment", async () => {
  const client = clientOf();
  const user = { user: "increment", ip: undefined };
  await client.increment("api", user, { by: 5 });
  await client.increment("api", user, { at: new Date(Date.now() - 30 * 60_000) });
  assert.equal(await client.count("api", user, "1h"), 6);
  assert.equal(await client.count("api", user, "1m", { at: new Date(Date.now() - 20 * 60_000) }), 0);
});

test("a reservation is settled once, released, and kept by renewal", async () => {
  const client = clientOf();
  const user = { user: "settle" };
  const estimate = await client.reserve("tokens", user, "30s", { cost: 500 });
  assert.equal(await client.count("tokens", user, "24h"), 500);
  await client.settle(estimate.reservation as string, 312);
  await client.settle(estimate.reservation as string, 312);
  assert.equal(await client.count("tokens", user, "24h"), 312);
  await assert.rejects(client.settle(estimate.reservation as string, 1), isKind("settled"));
  const other = await client.reserve("tokens", user, "30s", { cost: 600 });
  await client.release(other.reservation as string);
  assert.equal(await client.count("tokens", user, "24h"), 312);
  await assert.rejects(client.settle("no reservation", 1), isKind("invalid"));

  const lease = await client.hit("lease", { org: "renew" });
  assert.equal((await client.hit("lease", { org: "renew" })).allowed, false);
  const renewed = await client.renew(lease.reservation as string, "3s");
  await client.release(renewed);
  assert.equal((await client.hit("lease", { org: "renew" })).allowed, true);
  await assert.rejects(client.renew(renewed, "3s"), isKind("ended"));
});

test("a batch has a decision or an error for each hit", async () => {
  const client = clientOf();
  const user = { user: "batch" };
  const results = await client.batch([
    { event: "two", features: user, cost: 2 },
    { event: "two", features: user },
    { event: "absent", features: user },
    { event: "two", features: { ...user, ip: "nowhere" } },
    { event: "two", features: { user: "other" }, cost: -1 },
  ]);
  assert.deepEqual(
    results.map((result) => (result instanceof CounterdError ? result.kind : result.allowed)),
    [true, false, "unknown", "invalid", "invalid"],
  );
  const fault = results[3] as CounterdError;
  assert.equal(fault.faults[0]?.pointer, "/hits/3/features/ip");
  assert.equal(fault.maybeCounted, false);
  await assert.rejects(client.batch([]), isKind("invalid"));
});

test("features are sent as they are, whatever they contain", async () => {
  const client = clientOf();
  for (const value of ["../../x", "a/b?c=d&e#f", "100%", "a+b c", "ü✓😀", 'quote"\\', "%2F", ":", "\u0001"]) {
    for (let n = 1; n <= 2; n++) {
      await Promise.all([client.hit("api", { user: value }), client.hit("api", { user: `other ${value}` })]);
      assert.equal(await client.count("api", { user: value }, "1h"), n, value);
      assert.equal((await client.check("api", { user: value })).limits[0]?.count, n, value);
    }
  }
});

describe("coalescing", () => {
  test("200 concurrent hits of a limit of 50: 50 are admitted, in order, in few exchanges", async () => {
    const relay = await startRelay(server.url);
    const client = clientOf(relay.url);
    const decisions = await Promise.all(Array.from({ length: 200 }, () => client.hit("fifty", { user: "oracle" })));
    assert.deepEqual(
      decisions.map(({ allowed }) => allowed),
      Array.from({ length: 200 }, (_, i) => i < 50),
    );
    assert.deepEqual(
      relay.seen.map(({ path }) => path),
      ["/v1/events/fifty/hit", "/v1/batch"],
    );
  });

  test("a batch is half of what the server reads", async () => {
    const relay = await startRelay(server.url);
    const client = clientOf(relay.url);
    const value = "ü".repeat(510);
    await Promise.all(Array.from({ length: 2000 }, (_, i) => client.hit("api", { user: value, key: String(i) })));
    const most = Math.max(...relay.seen.map(({ body }) => Buffer.byteLength(body)));
    assert.ok(most > 510 * 1024 && most <= 512 * 1024, `${most}`);
  });

  test("each hit is sent alone with coalesce: false", async () => {
    const relay = await startRelay(server.url);
    await Promise.all([1, 2, 3].map(() => clientOf(relay.url, { coalesce: false }).hit("api", { key: "1" })));
    assert.deepEqual(new Set(relay.seen.map(({ path }) => path)), new Set(["/v1/events/api/hit"]));
    assert.equal(relay.seen.length, 3);
  });

  for (const name of ["WebSocketPair", "EdgeRuntime"]) {
    test(`each hit is sent alone in a runtime with ${name}, but for coalesce: true`, async (t) => {
      Object.assign(globalThis, { [name]: "of the test" });
      t.after(() => Reflect.deleteProperty(globalThis, name));
      for (const [options, exchanges] of [[{}, 3], [{ coalesce: undefined }, 3], [{ coalesce: true }, 2]] as const) {
        const relay = await startRelay(server.url);
        const client = clientOf(relay.url, options);
        await Promise.all([1, 2, 3].map(() => client.hit("api", { key: "1" })));
        assert.equal(relay.seen.length, exchanges);
      }
    });
  }

  test("a hit with a fault concerns no other", async () => {
    const relay = await startRelay(server.url);
    const client = clientOf(relay.url);
    const anything = (value: unknown): any => value;
    const faults = [
      client.hit("two", { user: "x", ip: "nowhere" }),
      client.hit("two", { User: "x" }),
      client.hit("two", { user: "x" }, { cost: -1 }),
      client.hit("two", { user: "x" }, { cost: 1.5 }),
      client.hit("two", { user: "x" }, { cost: 1e21 }),
      client.hit("two", { user: "x" }, { cost: NaN }),
      client.hit("two", { user: "x" }, { cost: anything("1") }),
      client.hit("two", { user: anything(1) }),
      client.hit("two", { user: anything(null) }),
      client.hit("two", anything("user")),
      client.hit("two", anything(null)),
      client.hit("two", { user: "\ud800" }),
      client.hit("two", Object.fromEntries(Array.from({ length: 16_001 }, (_, i) => [`k${i}`, "x"]))),
      client.hit("../two", { user: "x" }),
      client.hit(anything(undefined), { user: "x" }),
      client.reserve("two", { user: "x" }, anything(30)),
      client.reserve("two", { user: "x" }, "thirty"),
      client.hit("two", { user: "x" }, { timeout: 0 }),
    ].map((hit) => assert.rejects(hit, isKind("invalid")));
    const unknown = assert.rejects(client.hit("absent", { user: "x" }), isKind("unknown"));
    const good = ["a", "b"].map((user) => client.hit("two", { user }));
    await Promise.all([...faults, unknown]);
    assert.deepEqual(
      (await Promise.all(good)).map(({ allowed }) => allowed),
      [true, true],
    );
    assert.ok(relay.seen.some(({ path }) => path === "/v1/batch"));
  });

  test("a hit with a signal that has aborted is not sent", async () => {
    const relay = await startRelay(server.url);
    const signal = AbortSignal.abort(new Error("left"));
    await assert.rejects(clientOf(relay.url).hit("api", { key: "0" }, { signal }), /left/);
    assert.equal(relay.seen.length, 0);
  });

  test("errors name nothing of the batch", async () => {
    const gate = closedGate();
    const relay = await startRelay(server.url, gate.passed);
    const client = clientOf(relay.url);
    const alone = new Client({ url: server.url, coalesce: false });
    const faults: [Features, DecideOptions][] = [
      [{ user: "x" }, { cost: -1 }],
      [{ ip: "nowhere" }, {}],
      [{}, {}],
      [{ ip: "nowhere", User: "" }, { cost: -1 }],
    ];
    const first = client.hit("two", { user: "first" });
    await until(() => relay.seen.length === 1);
    const together = faults.map(([features, options]) => client.hit("two", features, options));
    const ended = Promise.allSettled(together);
    gate.open();
    await first;
    for (const [i, outcome] of (await ended).entries()) {
      const [features, options] = faults[i] as [Features, DecideOptions];
      const want = await alone.hit("two", features, options).catch((error: unknown) => error as CounterdError);
      const got = (outcome as PromiseRejectedResult).reason as CounterdError;
      assert.equal(got.message, (want as CounterdError).message);
      assert.deepEqual(got.faults, (want as CounterdError).faults);
    }
    assert.ok(relay.seen.some(({ path }) => path === "/v1/batch"));
  });
});

describe("queues", () => {
  test("a hit returns at its turn", async () => {
    const client = clientOf();
    const waits: number[] = [];
    for (let i = 0; i < 3; i++) {
      const begin = performance.now();
      const decision = await client.hit("queue", { key: "turn" });
      assert.equal(decision.allowed, true);
      assert.ok(performance.now() - begin >= (decision.wait ?? 0) * 1000 - 1);
      waits.push(decision.wait ?? 0);
    }
    assert.ok(Math.max(...waits) > 0);
  });

  test("a turn later than the timeout, or beyond maxWaiting, or with an abort, is given back", async () => {
    const client = clientOf(server.url, { timeout: 20_000, maxWaiting: 1 });
    const remaining = async (key: string) => (await client.check("slow_queue", { key })).limits[0]?.remaining;
    for (const key of ["timeout", "abort", "many"]) {
      await client.hit("slow_queue", { key });
      assert.equal(await remaining(key), 5);
    }
    await assert.rejects(client.hit("slow_queue", { key: "timeout" }), (error: CounterdError) => {
      assert.equal(error.decision?.allowed, false);
      return isKind("unavailable")(error) && !error.maybeCounted;
    });
    assert.equal(await remaining("timeout"), 5);
    for (const onFailure of ["open", "closed"] as const) {
      const denied = await client.hit("slow_queue", { key: "timeout" }, { onFailure });
      assert.deepEqual([denied.allowed, denied.failed instanceof CounterdError], [false, true]);
      assert.deepEqual(rateLimitHeaders(denied), {});
    }

    const leave = new AbortController();
    const unhurried = { timeout: 600_000, signal: leave.signal };
    const waiting = assert.rejects(client.hit("slow_queue", { key: "abort" }, unhurried), /left/);
    await untilWaiting(client, 1);
    assert.equal(await remaining("abort"), 4);
    await assert.rejects(client.hit("slow_queue", { key: "many" }, { timeout: 600_000 }), /too many/);
    assert.equal(await remaining("many"), 5);
    leave.abort(new Error("left"));
    await waiting;
    assert.equal(await remaining("abort"), 5);
  });

  test("a wait that the runtime drops with its request takes no place when its turn has come", async (t) => {
    t.mock.timers.enable({ apis: ["setTimeout"] }); // which drops it
    let now = 0;
    t.mock.method(performance, "now", () => now);
    const waits = { allowed: true, event: "queue", at: "2026-11-21T04:52:30Z", retry_after: 0, wait: 5, limits: [] };
    const client = clientOf(server.url, { maxWaiting: 1, fetch: async () => Response.json(waits) });
    const settled = async (): Promise<void> => {
      for (let i = 0; i < 10; i++) {
        await new Promise(setImmediate); // more turns of the loop than an exchange needs
      }
    };
    const hits = [client.hit("queue", { key: "dropped" })];
    await settled();
    await assert.rejects(client.hit("queue", { key: "dropped" }), /too many/);
    now = 5_001;
    hits.push(client.hit("queue", { key: "dropped" }));
    await settled();
    t.mock.timers.tick(5_000);
    await Promise.all(hits);
  });

  test("with maxWaiting: 0 the caller waits", async () => {
    const client = clientOf(server.url, { maxWaiting: 0 });
    await client.hit("slow_queue", { key: "zero" });
    const decision = await client.hit("slow_queue", { key: "zero" });
    assert.ok((decision.wait ?? 0) > 20);
    await client.release(decision.reservation as string);
  });
});

test("headers are those of counterd", async () => {
  const client = clientOf();
  const names = ["RateLimit-Policy", "RateLimit", "Retry-After"];
  const variants = [
    { user: "h" },
    { user: "h", ip: "2001:db8::1", key: "h" },
    { org: "h" },
    { user: "h", zero: "z" },
    { ip: "203.0.113.9", org: "h" },
  ];
  let denied = 0;
  for (let i = 0; i < 5; i++) {
    for (const features of variants) {
      const answer = await fetch(`${server.url}/v1/events/many/hit`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ features }),
      });
      const own = rateLimitHeaders((await answer.json()) as Decision);
      for (const name of names) {
        assert.equal(own[name] ?? null, answer.headers.get(name), `${name} of ${JSON.stringify(features)}`);
      }
      denied += answer.status === 429 ? 1 : 0;
    }
  }
  assert.ok(denied > 5);
  const month = rateLimitHeaders(await client.hit("month", { user: "h" }));
  assert.deepEqual(month, {
    "RateLimit-Policy": '"user-1000-per-month";q=1000',
    RateLimit: '"user-1000-per-month";r=999',
  });
});
