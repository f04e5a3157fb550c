import { orAbort, type Call } from "./call.js";
import { CounterdError, readOutcome, type Decision } from "./decision.js";
import { encodeHit, type Hit } from "./hit.js";
import { success, type Answer, type Server } from "./server.js";

/** The most hits of one batch. */
export const MAX_HITS = 1000;
/** The server takes 1 MiB. */
const MAX_BYTES = 1_000_000;

interface Pending {
  event: string;
  json: string;
  alone: string;
  bytes: number;
  sent: boolean;
  resolve: (decision: Decision) => void;
  reject: (error: unknown) => void;
}

/**
 * Sends hits in the order of their calls. One exchange is under way at a time: hits that come meanwhile
 * go together with the next. A hit that finds none under way goes at once, alone.
 */
export class Coalescer {
  readonly #server: Server;
  readonly #coalesce: boolean;
  #queue: Pending[] = [];
  #busy = false;
  /** The hits under way whose callers still wait, and what ends the exchange if none does. */
  #underway = new Set<Pending>();
  #exchange = new AbortController();

  constructor(server: Server, coalesce: boolean) {
    this.#server = server;
    this.#coalesce = coalesce;
  }

  /** Returns the decision of a hit. */
  async decide(hit: Hit, call: Call): Promise<Decision> {
    const encoded = encodeHit(hit);
    if (!this.#coalesce) {
      return alone(this.#server, encoded, call.signal);
    }
    call.signal.throwIfAborted();
    let pending: Pending | undefined;
    const decided = new Promise<Decision>((resolve, reject) => {
      const bytes = new TextEncoder().encode(encoded.json).byteLength + 1;
      pending = { ...encoded, bytes, sent: false, resolve, reject };
      this.#queue.push(pending);
    });
    if (!this.#busy) {
      void this.#send();
    }
    try {
      return await orAbort(decided, call.signal);
    } catch (error) {
      if (call.signal.aborted && pending !== undefined) {
        this.#leave(pending, call.signal.reason);
      }
      throw error;
    }
  }

  /** Takes a hit out whose caller does not wait any longer. It harms no other. */
  #leave(pending: Pending, reason: unknown): void {
    if (!pending.sent) {
      this.#queue = this.#queue.filter((other) => other !== pending);
      if (reason instanceof CounterdError) {
        reason.maybeCounted = false;
      }
      return;
    }
    if (this.#underway.delete(pending) && this.#underway.size === 0) {
      this.#exchange.abort();
    }
  }

  async #send(): Promise<void> {
    this.#busy = true;
    while (this.#queue.length > 0) {
      const batch = this.#nextBatch();
      this.#underway = new Set(batch);
      this.#exchange = new AbortController();
      try {
        await this.#exchangeBatch(batch, this.#exchange.signal);
      } catch (error) {
        for (const pending of batch) {
          pending.reject(error);
        }
      }
    }
    this.#busy = false;
  }

  #nextBatch(): Pending[] {
    let bytes = 0;
    let n = 0;
    for (const pending of this.#queue) {
      bytes += pending.bytes;
      if (n === MAX_HITS || (n > 0 && bytes > MAX_BYTES)) {
        break;
      }
      pending.sent = true;
      n++;
    }
    return this.#queue.splice(0, n);
  }

  async #exchangeBatch(batch: Pending[], signal: AbortSignal): Promise<void> {
    const [first] = batch;
    if (batch.length === 1 && first !== undefined) {
      first.resolve(await alone(this.#server, first, signal));
      return;
    }
    const body = `{"hits":[${batch.map((pending) => pending.json).join(",")}]}`;
    const outcomes = readResults(await this.#server.exchange("POST", "v1/batch", body, signal), batch.length);
    batch.forEach((pending, i) => {
      const outcome = outcomes[i];
      if (outcome instanceof CounterdError) {
        pending.reject(outcome);
      } else {
        pending.resolve(outcome as Decision);
      }
    });
  }
}

async function alone(server: Server, hit: { event: string; alone: string }, signal: AbortSignal): Promise<Decision> {
  const answer = await server.exchange("POST", `v1/events/${hit.event}/hit`, hit.alone, signal);
  return readOutcome(answer.status, answer.body, answer.requestId);
}

/** Returns what became of each of so many hits. */
export function readResults(answer: Answer, n: number): (Decision | CounterdError)[] {
  const { results } = success(answer);
  if (!Array.isArray(results) || results.length !== n) {
    throw new CounterdError("unexpected", "the answer has not one result for each hit", {
      httpStatus: answer.status,
      maybeCounted: true,
    });
  }
  return results.map((result: unknown) => {
    const status = (result as { status?: unknown } | null)?.status;
    try {
      return readOutcome(Number.isInteger(status) ? (status as number) : 0, result, answer.requestId);
    } catch (error) {
      return error as CounterdError;
    }
  });
}
