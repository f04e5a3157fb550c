import assert from "node:assert/strict";
import { createServer, get } from "node:http";
import type { AddressInfo } from "node:net";
import { after, describe, test } from "node:test";
import express from "express";
import {
  Client,
  CounterdError,
  decisionOf,
  expressMiddleware,
  fetchMiddleware,
  rateLimitHeaders,
  type MiddlewareOptions,
} from "counterd";
import { startCounterd, startFake, until, untilWaiting } from "./support.js";

const server = await startCounterd();
const client = new Client({ url: server.url, timeout: 60_000 });
const unreachable = await startFake((request) => request.socket.destroy());

type Handler = express.RequestHandler;
const hello: Handler = (request, response) => void response.json(decisionOf(request)?.limits[0]?.name ?? "unlimited");

async function startApp(middleware: Handler, handler: Handler = hello): Promise<string> {
  const app = express();
  app.use(middleware);
  app.all("/", handler);
  app.use(
    ((error: Error, _request, response, _next) =>
      void response.status(500).send(error.name)) as express.ErrorRequestHandler,
  );
  const listener = createServer(app).listen(0, "127.0.0.1");
  await new Promise((resolve) => listener.once("listening", resolve));
  after(() => {
    listener.close();
    listener.closeAllConnections();
  });
  return `http://127.0.0.1:${(listener.address() as AddressInfo).port}`;
}

const byUser = { user: (request: express.Request) => request.get("X-User") };
const options = (event: string): MiddlewareOptions<express.Request> => ({
  event: (request) => (request.method === "POST" ? undefined : event),
  features: (request) => ({ user: byUser.user(request) }),
});

/** What a denied request is answered with. */
async function assertDenied(response: Response): Promise<void> {
  assert.equal(response.status, 429);
  assert.equal(response.headers.get("Content-Type"), "application/problem+json");
  assert.equal(response.headers.get("RateLimit-Policy"), '"user-2-per-1h";q=2;w=3600');
  assert.match(response.headers.get("RateLimit") ?? "", /^"user-2-per-1h";r=0;t=\d+$/);
  const problem = (await response.json()) as Record<string, unknown>;
  assert.equal(problem.type, "https://iana.org/assignments/http-problem-types#quota-exceeded");
  assert.deepEqual([problem.status, problem["violated-policies"]], [429, ["user-2-per-1h"]]);
  assert.equal(response.headers.get("Retry-After"), String(problem.retry_after));
  assert.equal(
    problem.detail,
    `Denied by user-2-per-1h: it fits in ${problem.retry_after} seconds, if nothing else comes.`,
  );
}

async function assertUnavailable(response: Response): Promise<void> {
  assert.deepEqual([response.status, response.headers.get("Content-Type")], [503, "application/problem+json"]);
  assert.equal(((await response.json()) as { status: number }).status, 503);
}

describe("express", () => {
  test("requests are hits", async () => {
    const url = await startApp(expressMiddleware(client, options("two")));
    const headers = { "X-User": "express" };
    for (const remaining of [1, 0]) {
      const response = await fetch(url, { headers });
      assert.deepEqual([response.status, await response.json()], [200, "user-2-per-1h"]);
      assert.equal(response.headers.get("RateLimit"), `"user-2-per-1h";r=${remaining}`);
    }
    await assertDenied(await fetch(url, { headers }));
    const unlimited = await fetch(url, { method: "POST", headers });
    assert.deepEqual([await unlimited.json(), unlimited.headers.get("RateLimit")], ["unlimited", null]);
  });

  test("failures are decided, or go to the error handler", async () => {
    const failing = new Client({ url: unreachable });
    const answerTo = async (onFailure: "error" | "open" | "closed"): Promise<Response> =>
      fetch(await startApp(expressMiddleware(failing, { ...options("two"), onFailure })), {
        headers: { "X-User": "x" },
      });
    assert.equal(await (await answerTo("error")).text(), "CounterdError");
    const open = await answerTo("open");
    assert.deepEqual([open.status, open.headers.get("RateLimit")], [200, null]);
    await assertUnavailable(await answerTo("closed"));
    const faulty = await fetch(await startApp(expressMiddleware(client, { ...options("two"), onFailure: "open" })));
    assert.equal(faulty.status, 500); // without the feature
    const broken = { ...options("two"), features: (): { user: string } => JSON.parse("{") };
    assert.equal(await (await fetch(await startApp(expressMiddleware(client, broken)))).text(), "SyntaxError");
  });

  test("leases are renewed until the response ends", async () => {
    const ends: (() => void)[] = [];
    const org = { org: "express" };
    const url = await startApp(
      expressMiddleware(client, { event: "lease", features: () => org }),
      (_request, response) => void ends.push(() => response.end("done")),
    );
    const answer = fetch(url);
    await until(() => ends.length === 1);
    const held = performance.now() + 4_500; // longer than the lease
    while (performance.now() < held) {
      assert.equal((await client.check("lease", org)).allowed, false);
      await new Promise((resolve) => setTimeout(resolve, 250));
    }
    ends[0]?.();
    assert.equal(await (await answer).text(), "done");
    while (!(await client.check("lease", org)).allowed) {
      // until it is released
    }
  });

  test("a client that leaves the queue gives its turn back", async () => {
    let served = 0;
    const unhurried = new Client({ url: server.url, timeout: 600_000 });
    const url = await startApp(
      expressMiddleware(unhurried, { event: "slow_queue", features: () => ({ key: "express" }) }),
      (_request, response) => void response.end(String(++served)),
    );
    const remaining = async () => (await client.check("slow_queue", { key: "express" })).limits[0]?.remaining;
    await fetch(url);
    const request = get(url);
    request.on("error", () => undefined);
    await untilWaiting(unhurried, 1);
    assert.equal(await remaining(), 4);
    request.destroy();
    while ((await remaining()) !== 5) {
      // until it is given back
    }
    assert.equal(served, 1);
  });
});

describe("fetch", () => {
  const request = (user?: string, init: RequestInit = {}) =>
    new Request("http://service.example/", { ...init, headers: user === undefined ? {} : { "X-User": user } });
  const fetchOptions = (event: string): MiddlewareOptions<Request> => ({
    event: ({ method }) => (method === "POST" ? undefined : event),
    features: ({ headers }) => ({ user: headers.get("X-User") ?? undefined }),
  });

  test("requests are hits", async () => {
    const limited = fetchMiddleware(
      client,
      fetchOptions("two"),
    )((one, extra: string) =>
      extra === "redirect"
        ? Response.redirect("http://service.example/x")
        : Response.json([extra, decisionOf(one)?.allowed ?? null]),
    );
    const first = await limited(request("fetch"), "extra");
    assert.deepEqual([await first.json(), first.headers.get("RateLimit")], [["extra", true], '"user-2-per-1h";r=1']);
    const second = await limited(request("fetch"), "redirect"); // whose headers are immutable
    assert.deepEqual(
      [second.status, second.headers.get("Location"), second.headers.get("RateLimit")],
      [302, "http://service.example/x", '"user-2-per-1h";r=0'],
    );
    await assertDenied(await limited(request("fetch"), "extra"));
    assert.deepEqual(await (await limited(request("fetch", { method: "POST" }), "x")).json(), ["x", null]);
  });

  test("failures are decided, or thrown", async () => {
    const failing = new Client({ url: unreachable });
    const answerTo = (onFailure: "error" | "open" | "closed") =>
      fetchMiddleware(failing, { ...fetchOptions("two"), onFailure })(() => new Response("hello"))(request("x"));
    await assert.rejects(answerTo("error"), CounterdError);
    assert.equal(await (await answerTo("open")).text(), "hello");
    await assertUnavailable(await answerTo("closed"));
  });

  test("leases are released if the handler returns, or throws", async () => {
    const limited = fetchMiddleware(client, { event: "lease", features: () => ({ org: "fetch" }) });
    assert.equal((await limited(() => new Response("1"))(request())).status, 200);
    await assert.rejects(limited(() => Promise.reject(new Error("mine")))(request()), /mine/);
    const denied = await limited(async () => {
      const second = await limited(() => new Response("2"))(request());
      return new Response(null, { status: second.status });
    })(request());
    assert.equal(denied.status, 429);
    assert.equal((await client.check("lease", { org: "fetch" })).allowed, true);
  });
});

/** What servers have for the address of a client on a Unix socket, and of a header that is empty. */
const noAddresses = [undefined, null, "", " ", "unix:", "unix:/run/app.sock", "@"] as (string | undefined)[];

test("without an address the other limits decide, or onFailure", async () => {
  const request = new Request("http://service.example/");
  const answerTo = (event: string, features: Record<string, string | undefined>, onFailure: "error" | "open" | "closed") =>
    fetchMiddleware(client, { event, features: () => features, onFailure })(() => new Response("hello"))(request);
  for (const [n, ip] of noAddresses.entries()) {
    await assert.rejects(answerTo("address", { ip }, "error"), { kind: "invalid" });
    assert.equal((await answerTo("address", { ip }, "open")).status, 200);
    assert.equal((await answerTo("address", { ip, user: "x" }, "open")).status, 200);
    await assertUnavailable(await answerTo("address", { ip }, "closed"));
    for (const status of [200, 200, 429]) {
      assert.equal((await answerTo("two", { ip, user: `addressless ${n}` }, "open")).status, status);
    }
  }
  await assert.rejects(answerTo("address", { ip: "garbage" }, "open"), { kind: "invalid" }); // a client may choose it
  const app = await startApp(expressMiddleware(client, { event: "address", features: () => ({ ip: "" }), onFailure: "open" }));
  assert.equal((await fetch(app)).status, 200);
});

test("a value that a client chooses does not switch off the other limits", async () => {
  const request = new Request("http://service.example/");
  const statusOf = async (user: string, ip: string) =>
    (
      await fetchMiddleware(client, { event: "two", features: () => ({ user, ip }), onFailure: "open" })(
        () => new Response("hello"),
      )(request)
    ).status;
  for (const [n, user] of ["", "x".repeat(1_025), "é".repeat(600), "\ud800"].entries()) {
    for (const status of [200, 200, 429]) {
      assert.equal(await statusOf(user, `198.51.100.${n}`), status);
    }
  }
  assert.equal(await statusOf("x".repeat(1_025), "198.51.100.99"), 429, "the value has a counter");
  assert.equal(await statusOf("x".repeat(1_026), "198.51.100.99"), 200, "of its own");
});

test("a hit that may fit before the window ends", async () => {
  for (let i = 0; i < 2; i++) {
    assert.equal((await client.reserve("two", { user: "may-fit" }, "30s")).allowed, true);
  }
  const limited = fetchMiddleware(client, { event: "two", features: () => ({ user: "may-fit" }) });
  const response = await limited(() => new Response())(new Request("http://service.example/"));
  const problem = (await response.json()) as Record<string, unknown>;
  assert.deepEqual([response.status, response.headers.get("Retry-After"), problem.may_fit_after], [429, "1", 1]);
  assert.ok((problem.retry_after as number) > 3000);
  assert.match(problem.detail as string, /It may fit in 1 second/);
});

test("a hit that never fits has no Retry-After", async () => {
  const decision = await client.hit("two", { user: "never" }, { cost: 3 });
  assert.deepEqual(Object.keys(rateLimitHeaders(decision)), ["RateLimit-Policy", "RateLimit"]);
  const limited = fetchMiddleware(client, { event: "two", features: () => ({ user: "never" }), cost: () => 3 });
  const problem = (await (await limited(() => new Response())(new Request("http://service.example/"))).json()) as {
    detail: string;
  };
  assert.equal(problem.detail, "Denied by user-2-per-1h: it never fits.");
});
