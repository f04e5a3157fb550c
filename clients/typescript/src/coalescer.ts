import { orAbort, type Call } from "./call.js";
import { CounterdError, QUOTA_EXCEEDED, readDecision, readProblem, readResult, type Decision } from "./decision.js";
import { encodeHit, type Hit } from "./hit.js";
import { success, unexpected, type Answer, type Server } from "./server.js";

/** The most hits of one batch. */
export const MAX_HITS = 1000;
/** Half of what the server reads. */
const MAX_BYTES = 512 * 1024;
/** Statuses of an answer to a batch of which no hit was counted: the server takes no batches, or none of this size. */
const REFUSES_BATCHES = [400, 404, 405, 413];

interface Pending {
  event: string;
  json: string;
  alone: string;
  bytes: number;
  batch?: Batch;
  /** Undefined: the hit goes by itself. */
  resolve: (decision: Decision | undefined) => void;
  reject: (error: unknown) => void;
}

/** Hits that go together. */
interface Batch {
  hits: Pending[];
  /** The hits whose callers still wait. The exchange ends if none does. */
  waiting: Set<Pending>;
  exchange: AbortController;
}

/**
 * Sends hits in the order of their calls. Hits that come while an exchange is under way go together with the next.
 * A hit that finds none under way goes at once, alone. An exchange that takes longer than the hold, in milliseconds,
 * is late: the hits that wait go in an exchange of their own, and the late one goes on for its callers only.
 */
export class Coalescer {
  readonly #server: Server;
  readonly #coalesce: boolean;
  readonly #hold: number;
  readonly #giveBack: (reservation: string) => Promise<void>;
  readonly #queue = new Set<Pending>();
  /** What hits wait for. Undefined: there is none, and none waits. */
  #current: Batch | undefined;

  constructor(server: Server, coalesce: boolean, hold: number, giveBack: (reservation: string) => Promise<void>) {
    this.#server = server;
    this.#coalesce = coalesce;
    this.#hold = hold;
    this.#giveBack = giveBack;
  }

  /** Returns the decision of a hit. */
  async decide(hit: Hit, call: Call): Promise<Decision> {
    const encoded = encodeHit(hit);
    if (!this.#coalesce) {
      return alone(this.#server, encoded, call.signal);
    }
    call.signal.throwIfAborted();
    let pending: Pending | undefined;
    const decided = new Promise<Decision | undefined>((resolve, reject) => {
      const bytes = new TextEncoder().encode(encoded.json).byteLength + 1;
      pending = { ...encoded, bytes, resolve, reject };
      this.#queue.add(pending);
    });
    if (this.#current === undefined) {
      this.#begin();
    }
    let decision: Decision | undefined;
    try {
      decision = await orAbort(decided, call.signal);
    } catch (error) {
      if (call.signal.aborted && pending !== undefined) {
        this.#leave(pending, call);
        void this.#giveBackLater(decided);
      }
      throw error;
    }
    return decision ?? alone(this.#server, encoded, call.signal);
  }

  /** Takes a hit out whose caller does not wait any longer. It harms no other. */
  #leave(pending: Pending, call: Call): void {
    const { batch } = pending;
    if (batch === undefined) {
      this.#queue.delete(pending);
      call.over.maybeCounted = false;
    } else if (batch.waiting.delete(pending) && batch.waiting.size === 0) {
      batch.exchange.abort();
    }
  }

  /** Gives back what a hit gets whose caller has left: a lease or a turn, which is of no use then. */
  async #giveBackLater(decided: Promise<Decision | undefined>): Promise<void> {
    try {
      const reservation = (await decided)?.reservation;
      if (reservation !== undefined) {
        await this.#giveBack(reservation);
      }
    } catch {
      // It ends by itself.
    }
  }

  /** Begins an exchange of the hits that have waited longest. Others wait until it ends, or is late. */
  #begin(): void {
    const batch = this.#nextBatch();
    this.#current = batch;
    const late = setTimeout(() => this.#next(batch), this.#hold);
    void this.#exchangeBatch(batch)
      .catch((error: unknown) => batch.hits.forEach((pending) => pending.reject(error)))
      .then(() => {
        clearTimeout(late);
        this.#next(batch);
      });
  }

  /** Begins the next exchange if hits wait for this one, which has ended or is late. */
  #next(batch: Batch): void {
    if (this.#current === batch) {
      this.#current = undefined;
      if (this.#queue.size > 0) {
        this.#begin();
      }
    }
  }

  #nextBatch(): Batch {
    const batch: Batch = { hits: [], waiting: new Set(), exchange: new AbortController() };
    let bytes = 10; // of what is around the hits
    for (const pending of this.#queue) {
      bytes += pending.bytes;
      if (batch.hits.length === MAX_HITS || (batch.hits.length > 0 && bytes > MAX_BYTES)) {
        break;
      }
      this.#queue.delete(pending);
      pending.batch = batch;
      batch.hits.push(pending);
      batch.waiting.add(pending);
    }
    return batch;
  }

  async #exchangeBatch({ hits, exchange: { signal } }: Batch): Promise<void> {
    const [first] = hits;
    if (hits.length === 1 && first !== undefined) {
      first.resolve(await alone(this.#server, first, signal));
      return;
    }
    const body = `{"hits":[${hits.map((pending) => pending.json).join(",")}]}`;
    const answer = await this.#server.exchange("POST", "v1/batch", body, signal);
    if (REFUSES_BATCHES.includes(answer.status) && answer.body !== undefined) {
      hits.forEach((pending) => pending.resolve(undefined));
      return;
    }
    const outcomes = readResults(answer, hits.length, (i) => `/hits/${i}`);
    hits.forEach((pending, i) => {
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
  // A proxy in between may send a problem document with status 429, too.
  const denies = answer.status === 429 && answer.body?.type === QUOTA_EXCEEDED;
  const decision = readDecision(denies ? answer.body : success(answer));
  if (decision !== undefined && decision.allowed !== denies) {
    return decision;
  }
  throw denies ? readProblem(answer.status, undefined, answer.requestId) : unexpected(answer);
}

/**
 * Returns what became of each of so many hits. Of their callers' own errors the place of the hit in the batch is no
 * part: placeOf names it.
 */
export function readResults(
  answer: Answer,
  n: number,
  placeOf: (i: number) => string = () => "",
): (Decision | CounterdError)[] {
  const { results } = success(answer);
  if (!Array.isArray(results) || results.length !== n) {
    throw unexpected(answer, "it has not one result for each hit");
  }
  return results.map((result: unknown, i) => {
    const outcome = readResult(withoutPlace(result, placeOf(i)), answer.requestId);
    if (outcome === undefined) {
      throw unexpected(answer, `result ${i} is neither a decision nor a problem`);
    }
    return outcome;
  });
}

/** Returns a result without the place of its hit, which its detail and its pointers begin with. */
function withoutPlace(result: unknown, place: string): unknown {
  const problem = result as { detail?: unknown; errors?: unknown } | null;
  if (place === "" || typeof problem?.detail !== "string") {
    return result;
  }
  const strip = (text: unknown): unknown => {
    if (typeof text !== "string" || !(text === place || text.startsWith(`${place}/`) || text.startsWith(`${place}: `))) {
      return text;
    }
    return text.slice(place.length).replace(/^: /, "");
  };
  const errors = Array.isArray(problem.errors)
    ? problem.errors.map((fault: { pointer?: unknown } | null) =>
        typeof fault?.pointer === "string" ? { ...fault, pointer: strip(fault.pointer) } : fault,
      )
    : problem.errors;
  return { ...problem, detail: strip(problem.detail), errors };
}
