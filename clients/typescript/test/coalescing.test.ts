import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Client, CounterdError } from "counterd";
import { packageFolder, until } from "./support.js";

/** A step of a case. The table says what each member means. */
interface Step {
  call?: string;
  times?: number;
  timeout?: number;
  leave?: string;
  pass?: number;
  end?: string;
  status?: number;
  foreign?: boolean;
  broken?: boolean;
  results?: Record<string, object>;
  sends?: string[];
  cancels?: string[];
  returns?: Record<string, string>;
}
const file = join(packageFolder, "../testdata/coalescing.json");
const { cases } = JSON.parse(readFileSync(file, "utf8")) as {
  cases: { name: string; timeout?: number; steps: Step[] }[];
};

/** Returns the texts, those in a row that are equal as one with their number. */
function counted(texts: string[]): string[] {
  const ends = texts.flatMap((text, i) => (text === texts[i + 1] ? [] : [i]));
  return ends.map((end, i) => {
    const n = end - (ends[i - 1] ?? -1);
    return n === 1 ? (texts[end] as string) : `${n}*${texts[end]}`;
  });
}

/** Names what became of a call, as the table does. */
function outcome(error: unknown): string {
  if (!(error instanceof CounterdError) || error.message.includes("/hits/")) {
    return String(error);
  }
  if (error.kind === "unavailable") {
    return error.maybeCounted ? "unavailable" : "not sent";
  }
  return [error.kind, ...error.faults.map(({ pointer }) => pointer)].join(" ");
}

const answer = (body: unknown, status = 200): Response => {
  const type = status === 200 ? "application/json" : "application/problem+json";
  return new Response(JSON.stringify(body), { status, headers: { "Content-Type": type } });
};

function answerOf(hits: string[], { status, foreign, results = {} }: Step): Response {
  if (status !== undefined) {
    return answer(foreign ? "<html>" : { title: "Any" }, status);
  }
  const admitted = { status: 200, allowed: true, at: "2026-11-21T04:52:30Z", retry_after: 0, limits: [] };
  const all = hits.map((hit) => results[hit] ?? { ...admitted, event: hit });
  return answer(all.length === 1 ? all[0] : { results: all });
}

describe("the cases of all clients", () => {
  for (const { name, timeout = 10, steps } of cases) {
    test(name, async (t) => {
      t.mock.timers.enable({ apis: ["setTimeout"] });
      const log: string[] = []; // what has happened, as in "sends a b", "cancels a b", "a is admitted"
      const exchanges: { name: string; end: (step: Step) => void }[] = [];

      const exchange = (url: unknown, init: RequestInit = {}): Promise<Response> =>
        new Promise((resolve, reject) => {
          const body = JSON.parse(String(init.body));
          const hits = (body.hits ?? [body]).map((hit: { features: { user: string } }) => hit.features.user);
          const { pathname } = url as URL;
          const usual = pathname === (hits.length === 1 ? "/v1/events/api/hit" : "/v1/batch");
          const name = counted(hits).join(" ") + (usual ? "" : ` by ${pathname}`);
          log.push(`sends ${name}`);
          const end = (step: Step): void =>
            step.broken ? reject(new TypeError("fetch failed")) : resolve(answerOf(hits, step));
          exchanges.push({ name, end });
          init.signal?.addEventListener("abort", () => {
            log.push(`cancels ${name}`);
            reject(init.signal?.reason);
          });
        });
      const client = new Client({ url: "http://counterd.test", timeout: timeout * 1000, fetch: exchange });

      const callers: Record<string, AbortController> = {};
      const call = async (user: string, seconds = timeout): Promise<void> => {
        const { signal } = (callers[user] = new AbortController());
        const hit = client.hit("api", { user }, { timeout: seconds * 1000, signal });
        const became = await hit.then(
          ({ allowed, event }) => (allowed && event === user ? "admitted" : `decided as ${event}`),
          outcome,
        );
        log.push(`${user} is ${became}`);
      };

      for (const step of steps) {
        log.length = 0;
        if (step.call !== undefined) {
          for (let i = 0; i < (step.times ?? 1); i++) {
            void call(step.call, step.timeout);
          }
        } else if (step.end !== undefined) {
          exchanges.find(({ name }) => name === step.end)?.end(step);
        } else if (step.leave !== undefined) {
          callers[step.leave]?.abort("left");
        } else {
          t.mock.timers.tick((step.pass ?? 0) * 1000);
        }
        for (let i = 0; i < 10; i++) {
          await new Promise(setImmediate); // more turns of the loop than a step needs
        }
        const want = [
          ...(step.sends ?? []).map((name) => `sends ${name}`),
          ...(step.cancels ?? []).map((name) => `cancels ${name}`),
          ...Object.entries(step.returns ?? {}).map(([call, became]) => `${call} is ${became}`),
        ];
        assert.deepEqual(counted(log.sort()).sort(), want.sort(), JSON.stringify(step));
      }
    });
  }
});

test("what the hit of a caller that has left gets is given back", async () => {
  const asked: { path: string; body: string; end: (answer: Response) => void }[] = [];
  const exchange = (url: unknown, init: RequestInit = {}): Promise<Response> =>
    new Promise((end) => asked.push({ path: (url as URL).pathname, body: String(init.body), end }));
  const client = new Client({ url: "http://counterd.test", fetch: exchange });
  const leased = (user: string) => ({
    status: 200,
    allowed: true,
    event: "lease",
    at: "2026-11-21T04:52:30Z",
    retry_after: 0,
    reservation: `of ${user}`,
    limits: [],
  });
  const hit = (user: string, options = {}) => client.hit("lease", { user }, options);

  const first = hit("first");
  const leaves = new AbortController();
  const left = assert.rejects(hit("left", { signal: leaves.signal }), /left/);
  const failed = assert.rejects(hit("failed", { signal: leaves.signal }), /left/);
  const stays = hit("stays");
  asked[0]?.end(answer(leased("first")));
  assert.equal((await first).reservation, "of first");
  leaves.abort(new Error("left"));
  await Promise.all([left, failed]);
  asked[1]?.end(answer({ results: [leased("left"), { status: 404, title: "Any" }, leased("stays")] }));
  assert.equal((await stays).reservation, "of stays");
  await until(() => asked.length === 3);
  assert.equal(asked[2]?.path, "/v1/settle");
  assert.deepEqual(JSON.parse(asked[2]?.body ?? ""), { reservation: "of left", cost: 0 });
  asked[2]?.end(answer({ title: "Gone" }, 410));
  await new Promise(setImmediate);
  assert.equal(asked.length, 3);
});

test("an error that a caller leaves with stays as it is", async () => {
  const never = (): Promise<Response> => new Promise(() => {});
  const client = new Client({ url: "http://counterd.test", fetch: never });
  const leaves = new AbortController();
  const reason = new CounterdError("unavailable", "of another hit", { maybeCounted: true });
  const hits = ["sent", "waits"].map((user) => client.hit("login", { user }, { signal: leaves.signal }));
  leaves.abort(reason);
  for (const hit of hits) {
    await assert.rejects(hit, (error) => error === reason && reason.maybeCounted);
  }
});
