import assert from "node:assert/strict";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { Client, CounterdError, expressMiddleware, fetchMiddleware, type OnFailure } from "counterd";
import { startFake } from "./support.js";

const url = "http://127.0.0.1:1";
const user = { user: "42" };

async function closedPort(): Promise<string> {
  const listener = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => listener.once("listening", resolve));
  const { port } = listener.address() as AddressInfo;
  await new Promise((resolve) => listener.close(resolve));
  return `http://127.0.0.1:${port}`;
}

test("unknown values are errors in constructors", async () => {
  const invalid = { name: "CounterdError", kind: "invalid" };
  const unknown: object[] = [
    { onFailure: "permit" },
    { onFailure: "Allow" },
    { onFailure: null },
    { timeout: 0 },
    { timeout: Number.NaN },
    { timeout: "2" },
    { maxWaiting: -1 },
    { maxWaiting: 1.5 },
  ];
  for (const settings of unknown) {
    assert.throws(() => new Client({ url, ...settings }), invalid, JSON.stringify(settings));
  }
  const client = new Client({ url });
  for (const settings of [{ onFailure: "permit" }, { event: "Api" }, { event: 7 }] as object[]) {
    const options = { event: "api", features: () => ({}), ...settings };
    assert.throws(() => expressMiddleware(client, options), invalid, JSON.stringify(settings));
    assert.throws(() => fetchMiddleware(client, options), invalid, JSON.stringify(settings));
  }
  assert.throws(() => new Client({ url, onFailure: "permit" as OnFailure }), /onFailure must be "error", "allow" or "deny"/);
  await assert.rejects(client.hit("api", user, { onFailure: "permit" as OnFailure }), invalid);
});

test("the words are those of a rule's on_error", async () => {
  const words: [OnFailure, boolean][] = [["allow", true], ["deny", false], ["open", true], ["closed", false]];
  for (const [onFailure, allowed] of words) {
    const client = new Client({ url, onFailure });
    const [batched] = await client.batch([{ event: "api", features: user }]);
    for (const decision of [await client.hit("api", user), await client.check("api", user), batched]) {
      assert.ok(decision !== undefined && !(decision instanceof CounterdError));
      assert.deepEqual([decision.allowed, decision.failed?.kind], [allowed, "unavailable"]);
    }
  }
});

test("a token that no header can carry", async () => {
  const wrong = (kind: string) => (fault: unknown): boolean => {
    assert.ok(fault instanceof CounterdError && fault.kind === kind);
    assert.match(fault.message, /trim what was read/);
    assert.doesNotMatch(fault.message, /sesame/);
    return true;
  };
  for (const token of ["sesame\n", "", "ses ame", "ses\r\name", "sesame\x01", "sésame", 7 as unknown as string]) {
    assert.throws(() => new Client({ url, token }), wrong("invalid"));
    await assert.rejects(new Client({ url, token: () => token }).hit("api", user), wrong("refused"));
  }
});

test("errors name the address", async () => {
  const away = await closedPort();
  const message = async (base: string, timeout = 60_000) =>
    new Client({ url: base, timeout }).hit("api", user).then(String, (error: Error) => error.message);
  assert.match(await message(`${away}/prefix/`), new RegExp(`cannot reach ${away}/prefix: ECONNREFUSED$`));
  const breaks = await startFake((request) => request.socket.destroy());
  assert.match(await message(breaks), new RegExp(`cannot reach ${breaks}: \\w+$`));
  const silent = await startFake(() => undefined);
  assert.match(await message(silent, 20), new RegExp(`no answer within 20 ms from ${silent}$`));
});
