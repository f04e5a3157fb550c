import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Client, CounterdError, type OnFailure } from "counterd";
import { startCounterd, startFake, startRelay, temporaryFolder } from "./support.js";

const user = { user: "42" };

const answer =
  (status: number, type: string, body: string | Buffer, headers = {}) =>
  (_: IncomingMessage, response: ServerResponse) => {
    response.writeHead(status, { "Content-Type": type, ...headers }).end(body);
  };
const decision = { allowed: true, event: "api", at: "2026-11-21T04:52:30Z", retry_after: 0, limits: [] };
const latin1 = Buffer.from(JSON.stringify({ ...decision, event: "\u00e9" }), "latin1");
const html = "<html>Bad gateway</html>";

describe("a failure decides nothing by itself, or by the caller's choice", () => {
  const faults: Record<string, [(request: IncomingMessage, response: ServerResponse) => void, kind: string]> = {
    "a proxy's 502": [answer(502, "text/html", html), "unavailable"],
    "a page in place of JSON": [answer(200, "text/html", html), "unexpected"],
    "not UTF-8": [answer(200, "application/json", latin1), "unexpected"],
    "a redirect": [answer(302, "text/html", "", { Location: "/elsewhere" }), "unexpected"],
    "a closed connection": [(request) => request.socket.destroy(), "unavailable"],
    "a body that breaks off": [
      (request, response) => {
        response.writeHead(200, { "Content-Type": "application/json", "Content-Length": 100 }).write("{");
        setTimeout(() => request.socket.destroy(), 20);
      },
      "unavailable",
    ],
    "an answer without end": [
      (_, response) => {
        response.writeHead(200, { "Content-Type": "application/json" });
        const chunk = "x".repeat(1 << 20);
        const more = (): void => {
          while (!response.destroyed && response.write(chunk)) {
            // until the client takes no more
          }
        };
        response.on("drain", more);
        more();
      },
      "unexpected",
    ],
    "no answer": [() => undefined, "unavailable"],
    "half an answer": [
      (_, response) => void response.writeHead(200, { "Content-Type": "application/json" }).write("{"),
      "unavailable",
    ],
  };
  for (const [name, [handler, kind]] of Object.entries(faults)) {
    test(name, async () => {
      const paths: string[] = [];
      const url = await startFake((request, response) => {
        paths.push(request.url ?? "");
        handler(request, response);
      });
      const timeout = name.startsWith("no ") || name.startsWith("half an ") ? 1_000 : 60_000;
      const client = new Client({ url, timeout });
      await assert.rejects(client.hit("api", user), (error: CounterdError) => {
        assert.ok(error instanceof CounterdError, `${error}`);
        assert.equal(error.kind, kind, error.message);
        assert.equal(error.maybeCounted, true);
        return true;
      });
      assert.deepEqual(paths, ["/v1/events/api/hit"]); // once, and nowhere else
      for (const onFailure of ["open", "closed"] as OnFailure[]) {
        const calls = [
          client.hit("api", user, { onFailure }),
          client.hit("api", user, { onFailure }),
          client.check("api", user, { onFailure }),
        ];
        for (const decided of [
          ...(await Promise.all(calls)),
          ...(await client.batch([{ event: "api", features: user }], { onFailure })),
        ]) {
          assert.ok(!(decided instanceof CounterdError));
          assert.equal(decided.allowed, onFailure === "open");
          assert.equal(decided.failed?.kind === "unavailable" || decided.failed?.kind === "unexpected", true);
          assert.deepEqual([decided.event, decided.limits], ["api", []]);
        }
      }
    });
  }

  test("no server", async () => {
    const listener = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => listener.once("listening", resolve));
    const { port } = listener.address() as AddressInfo;
    await new Promise((resolve) => listener.close(resolve));
    const client = new Client({ url: `http://127.0.0.1:${port}`, onFailure: "open" });
    assert.equal((await client.hit("api", user)).failed?.kind, "unavailable");
  });
});

test("a rule that refuses what it cannot count outranks onFailure", async () => {
  const server = await startCounterd(["-memcached", "127.0.0.1:1"]);
  const client = new Client({ url: server.url, timeout: 60_000 });
  await assert.rejects(client.hit("strict", user), (error: CounterdError) => {
    assert.deepEqual([error.kind, error.httpStatus, error.decision?.allowed], ["unavailable", 503, false]);
    return true;
  });
  for (const onFailure of ["open", "closed"] as const) {
    const decided = await Promise.all([
      client.hit("strict", user, { onFailure }),
      client.hit("strict", user, { onFailure }),
    ]);
    for (const { allowed, failed, limits } of decided) {
      assert.deepEqual([allowed, failed?.httpStatus, limits[0]?.on_error], [false, 503, "deny"]);
    }
  }
  assert.equal((await client.hit("api", user)).limits[0]?.on_error, "allow");
});

test("tokens are sent, and a wrong one is no failure that opens", async () => {
  const [file, rules] = ["tokens", "rules.yaml"].map((name) => join(temporaryFolder(), name)) as [string, string];
  writeFileSync(rules, "events: {api: {limits: [{per: user, rate: 100/h}]}}");
  writeFileSync(file, "edge decide kX2vN7qTf0ZrLw9sYb4hDg\n", { mode: 0o600 });
  const { url } = await startCounterd(["-tokens", file], { file: rules });
  const good = "kX2vN7qTf0ZrLw9sYb4hDg";
  for (const token of [good, () => good, async () => good]) {
    assert.equal((await new Client({ url, token }).hit("api", user)).allowed, true);
  }
  const refused = async (token: string | (() => string) | undefined): Promise<void> => {
    const client = new Client({ url, token, onFailure: "open" });
    const wrong = (error: CounterdError): boolean =>
      error.kind === "refused" && !error.message.includes("secret-token");
    await Promise.all([1, 2].map(() => assert.rejects(client.hit("api", user), wrong)));
  };
  await refused(undefined);
  await refused("secret-token-that-is-unknown");
  await refused(() => "secret-token\r\nX-Injected: 1");
  await refused(() => {
    throw new Error("the vault is closed");
  });
  await assert.rejects(new Client({ url, token: good }).increment("api", user), /403/);
});

test("the server may restart between calls", async () => {
  const first = await startCounterd();
  const client = new Client({ url: first.url, timeout: 60_000 });
  await Promise.all([client.hit("api", user), client.hit("api", user)]);
  await first.stop();
  await startCounterd([], { listen: new URL(first.url).host });
  assert.equal((await client.hit("api", user)).limits[0]?.count, 1);
});

test("the server may be below a path, and its URL is checked", async () => {
  const { url } = await startCounterd();
  const relay = await startRelay(url);
  for (const suffix of ["/prefix", "/prefix/"]) {
    await assert.rejects(new Client({ url: relay.url + suffix }).hit("api", user), /404/);
    assert.equal(relay.seen.at(-1)?.path, "/prefix/v1/events/api/hit");
  }
  for (const wrong of [
    "",
    "127.0.0.1:8080",
    "ftp://127.0.0.1",
    "http://a:b@127.0.0.1",
    "http://127.0.0.1?x",
    "http://127.0.0.1#x",
  ]) {
    assert.throws(() => new Client({ url: wrong }), CounterdError);
  }
});

test("an exchange ends with its callers, even if fetch ignores its signal", async () => {
  const client = new Client({ url: "http://127.0.0.1:1", fetch: () => new Promise(() => undefined), timeout: 50 });
  await Promise.all([1, 2].map(() => assert.rejects(client.hit("api", user), /no answer within 50 ms/)));
  await assert.rejects(client.hit("api", user), /no answer within 50 ms/);
});
