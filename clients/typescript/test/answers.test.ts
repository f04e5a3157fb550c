import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Client, CounterdError } from "counterd";
import { packageFolder } from "./support.js";

/** A case of the table, which says what each member means. */
interface Case {
  name: string;
  calls?: string[];
  hits?: number;
  statuses?: number[];
  types?: string[];
  body?: unknown;
  each?: string[];
  outcome: string | string[];
  maybe_counted?: boolean;
  refusal?: boolean;
}
const file = join(packageFolder, "../testdata/answers.json");
const { cases } = JSON.parse(readFileSync(file, "utf8")) as { cases: Case[] };

const user = { user: "42" };
const calls: Record<string, (client: Client, hits: number) => Promise<unknown>> = {
  hit: (client) => client.hit("api", user),
  reserve: (client) => client.reserve("api", user, "1m"),
  check: (client) => client.check("api", user),
  batch: (client, hits) => client.batch(Array.from({ length: hits }, () => ({ event: "api", features: user }))),
  settle: (client) => client.settle("r", 1),
  renew: (client) => client.renew("r", "1m"),
  increment: (client) => client.increment("api", user),
  count: (client) => client.count("api", user, "1h"),
};

interface Answer {
  status: number;
  media: string;
  text: string;
}

/** Returns the answers of a case. Undefined: there is no answer. */
function answersOf({ statuses, types, body = "", each = ["EACH"] }: Case): (Answer | undefined)[] {
  const pattern = typeof body === "string" ? body : JSON.stringify(body);
  return (
    statuses?.flatMap((status) =>
      (types ?? [status < 300 ? "application/json" : "application/problem+json"]).flatMap((media) =>
        each.map((value) => ({ status, media, text: pattern.replace(/"EACH"|EACH/g, () => value) })),
      ),
    ) ?? [undefined]
  );
}

async function exchange(answer: Answer | undefined): Promise<Response> {
  if (answer === undefined) {
    throw new TypeError("the connection is lost");
  }
  const { status, media, text } = answer;
  const body = text === "" ? null : new TextEncoder().encode(text); // a string has a type of its own
  return new Response(body, { status, headers: media === "" ? {} : { "Content-Type": media } });
}

/** Names what became of a call, as the table does. */
function outcomeOf(result: unknown, answer: Answer | undefined, { outcome, maybe_counted, refusal }: Case): unknown {
  if (Array.isArray(result)) {
    return result.map((one) => outcomeOf(one, undefined, { name: "", outcome }));
  }
  if (result instanceof CounterdError) {
    const kind = result.kind === "settled" ? "conflict" : result.kind;
    assert.equal(result.maybeCounted, maybe_counted ?? ["unavailable", "unexpected"].includes(kind));
    if (answer !== undefined) {
      assert.equal(result.httpStatus, answer.status);
      assert.equal(result.decision?.allowed, refusal ? false : undefined);
    }
    return kind;
  }
  const allowed = (result as { allowed?: boolean } | undefined)?.allowed;
  return allowed === undefined ? "done" : allowed ? "admitted" : "denied";
}

describe("the answers that are counterd's", () => {
  for (const answered of cases) {
    test(answered.name, async () => {
      for (const answer of answersOf(answered)) {
        const client = new Client({ url: "http://counterd.test", fetch: () => exchange(answer) });
        for (const call of answered.calls ?? Object.keys(calls)) {
          const result = await calls[call]?.(client, answered.hits ?? 1).catch((error: unknown) => error);
          const became = outcomeOf(result, answer, answered);
          assert.deepEqual(became, answered.outcome, `${call}: ${JSON.stringify(answer)} ${result}`);
        }
      }
    });
  }
});
