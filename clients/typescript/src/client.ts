import { Call, checkTimeout, orAbort, type CallOptions } from "./call.js";
import { Coalescer, MAX_HITS, readResults } from "./coalescer.js";
import {
  CounterdError,
  checkOnFailure,
  decideFailure,
  readDecision,
  type Decision,
  type Features,
  type OnFailure,
} from "./decision.js";
import { duration, encodeHit, eventName, givenFeatures, wholeCost, type Hit } from "./hit.js";
import { Server, success, unexpected, type Answer, type Token } from "./server.js";

/** Settings of a client. */
export interface ClientOptions {
  /** The server's, such as http://127.0.0.1:8080. */
  url: string;
  /** The token of each request, or a function that returns it. */
  token?: Token | undefined;
  /** The longest that a call may take, in milliseconds. Default: 10,000. */
  timeout?: number | undefined;
  /** What decides if counterd does not: error (default) rejects, allow admits, deny denies. */
  onFailure?: OnFailure | undefined;
  /**
   * Whether concurrent hits share requests. Default: true, but false in Cloudflare Workers and Vercel's Edge Runtime,
   * which refuse I/O that callers share. There true is for a client that is made for one request.
   */
  coalesce?: boolean | undefined;
  /** How many hits wait for their turns in queues at a time. Default: 10,000. 0: none waits; see decision.wait. */
  maxWaiting?: number | undefined;
  /** Makes the exchanges. Default: the platform's fetch. */
  fetch?: typeof fetch | undefined;
}

/** Settings of a call that decides. */
export interface DecideOptions extends CallOptions {
  /** 0 to 1,000,000; default 1. */
  cost?: number | undefined;
  /** Instead of the client's. */
  onFailure?: OnFailure | undefined;
}

/** What a batch returns for a hit: its decision, or what is wrong with it. */
export type Result = Decision | CounterdError;

/** A request that hangs holds up the hits behind it for a part of the timeout, and for so many milliseconds at most. */
const HOLD_SHARE = 1 / 4;
const MAX_HOLD = 1_000;
const DEFAULT_TIMEOUT = 10_000;
const DEFAULT_MAX_WAITING = 10_000;
/** How long a hit whose caller does not wait takes at most to give back its turn or lease, in milliseconds. */
const GIVE_BACK_TIMEOUT = 2_000;
/** Globals of runtimes where requests may not share I/O: Cloudflare Workers, Vercel's Edge Runtime. */
const ISOLATING = ["WebSocketPair", "EdgeRuntime"];

/** A client of one counterd server. It is made once, and shared. */
export class Client {
  readonly #server: Server;
  readonly #coalescer: Coalescer;
  readonly #timeout: number;
  /** What decides if counterd does not. */
  readonly onFailure: OnFailure;
  readonly #maxWaiting: number;
  /** Hits that wait for their turns. A runtime may drop a wait with its request. The tests read it. */
  private readonly waiting = new Set<{ turn: number }>();

  constructor(options: ClientOptions) {
    this.#server = new Server(options.url, options.token, options.fetch ?? fetch);
    this.#timeout = checkTimeout(options.timeout === undefined ? DEFAULT_TIMEOUT : options.timeout);
    const hold = Math.min(MAX_HOLD, this.#timeout * HOLD_SHARE);
    const coalesce = options.coalesce ?? !ISOLATING.some((name) => name in globalThis);
    const giveBack = (reservation: string): Promise<void> => this.release(reservation, { timeout: GIVE_BACK_TIMEOUT });
    this.#coalescer = new Coalescer(this.#server, coalesce, hold, giveBack);
    this.onFailure = checkOnFailure(options.onFailure === undefined ? "error" : options.onFailure);
    this.#maxWaiting = options.maxWaiting ?? DEFAULT_MAX_WAITING;
    if (!Number.isInteger(this.#maxWaiting) || this.#maxWaiting < 0) {
      throw new CounterdError("invalid", "maxWaiting is a whole number, at least 0");
    }
  }

  /**
   * Adds a hit to the counters of an event that its rules name, and returns whether they admit it. A denial
   * is no error. Where a rule has a queue, the hit returns when its turn has come; if that is later than the
   * timeout, or the signal aborts, it gives the turn back, with all that it counts.
   */
  async hit(event: string, features: Features, options: DecideOptions = {}): Promise<Decision> {
    return this.#decide({ event, features, cost: options.cost }, options);
  }

  /**
   * Is a hit whose cost is an estimate, which settle replaces within that time, such as "30s", up to 24h. After it, the
   * estimate counts. decision.reservation names what was reserved.
   */
  async reserve(event: string, features: Features, within: string, options: DecideOptions = {}): Promise<Decision> {
    return this.#decide({ event, features, cost: options.cost, reserve: within }, options);
  }

  /** Replaces the cost that was reserved by the true one, 0 to 1,000,000, and releases leases. It may be repeated. */
  async settle(reservation: string, cost: number, options: CallOptions = {}): Promise<void> {
    const answer = await this.#settle({ reservation, cost: wholeCost(cost) }, options);
    if (success(answer).settled !== true) {
      throw unexpected(answer);
    }
  }

  /** Gives back what was reserved, and releases leases. */
  async release(reservation: string, options: CallOptions = {}): Promise<void> {
    await this.settle(reservation, 0, options);
  }

  /** Has leases end no sooner than that from now, such as "30s", and returns the reservation to renew next. */
  async renew(reservation: string, by: string, options: CallOptions = {}): Promise<string> {
    const answer = await this.#settle({ reservation, renew: duration(by, "by") }, options);
    const { reservation: renewed } = success(answer);
    if (typeof renewed !== "string" || renewed === "") {
      throw unexpected(answer);
    }
    return renewed;
  }

  /** Returns the decision that a hit would get, with exact counts, and adds nothing. */
  async check(event: string, features: Features, options: DecideOptions = {}): Promise<Decision> {
    const query = featureQuery(features);
    query.set("cost", String(wholeCost(options.cost ?? 1)));
    const path = `v1/events/${eventName(event)}/check?${query}`;
    return this.#withFailure(event, options, async (call) => {
      const answer = await this.#server.exchange("GET", path, undefined, call.signal);
      const decision = readDecision(success(answer));
      if (decision === undefined) {
        throw unexpected(answer);
      }
      return decision;
    });
  }

  /**
   * Adds and decides 1 to 1,000 hits in one request, those on the same counter in their order, and returns
   * one result for each. It does not wait for turns in queues: decision.wait says how long to.
   */
  async batch(hits: readonly Hit[], options: Omit<DecideOptions, "cost"> = {}): Promise<Result[]> {
    if (hits.length < 1 || hits.length > MAX_HITS) {
      throw new CounterdError("invalid", `a batch has 1 to ${MAX_HITS} hits`);
    }
    const body = `{"hits":[${hits.map((hit) => encodeHit(hit).json).join(",")}]}`;
    const onFailure = options.onFailure ?? this.onFailure;
    const decideOr = (event: string, error: unknown): Result => {
      try {
        return decideFailure(event, error, onFailure);
      } catch {
        return error as CounterdError;
      }
    };
    try {
      const results = await this.#call(options, async (call) =>
        readResults(await this.#server.exchange("POST", "v1/batch", body, call.signal), hits.length),
      );
      return results.map((result, i) =>
        result instanceof CounterdError ? decideOr((hits[i] as Hit).event, result) : result,
      );
    } catch (error) {
      return hits.map((hit) => decideFailure(hit.event, error, onFailure));
    }
  }

  /** Adds to the counters of an event without deciding: 1 to 1,000,000, default 1, now or at a moment. */
  async increment(
    event: string,
    features: Features,
    options: CallOptions & { by?: number | undefined; at?: Date | undefined } = {},
  ): Promise<void> {
    const path = `v1/events/${eventName(event)}/increment`;
    const body: Record<string, unknown> = { features: Object.fromEntries(givenFeatures(features)) };
    if (options.by !== undefined) {
      body.by = wholeCost(options.by);
    }
    if (options.at !== undefined) {
      body.at = moment(options.at);
    }
    const answer = await this.#call(options, async (call) =>
      this.#server.exchange("POST", path, JSON.stringify(body), call.signal),
    );
    const { event: counted } = success(answer);
    if (typeof counted !== "string" || counted === "") {
      throw unexpected(answer);
    }
  }

  /** Returns the sum of one counter over a window, such as "24h", that ends now or at a moment. */
  async count(
    event: string,
    features: Features,
    window: string,
    options: CallOptions & { at?: Date | undefined } = {},
  ): Promise<number> {
    const query = featureQuery(features);
    query.set("window", duration(window, "window"));
    if (options.at !== undefined) {
      query.set("at", String(moment(options.at)));
    }
    const path = `v1/events/${eventName(event)}/count?${query}`;
    const answer = await this.#call(options, async (call) =>
      this.#server.exchange("GET", path, undefined, call.signal),
    );
    const { count } = success(answer);
    if (!Number.isSafeInteger(count) || (count as number) < 0) {
      throw unexpected(answer);
    }
    return count as number;
  }

  async #call<T>(options: CallOptions, exchange: (call: Call) => Promise<T>): Promise<T> {
    const call = new Call(options.timeout ?? this.#timeout, this.#server.address, options.signal);
    try {
      return await exchange(call);
    } finally {
      call.end();
    }
  }

  async #withFailure(
    event: string,
    options: DecideOptions,
    decide: (call: Call) => Promise<Decision>,
  ): Promise<Decision> {
    try {
      return await this.#call(options, decide);
    } catch (error) {
      return decideFailure(event, error, options.onFailure ?? this.onFailure);
    }
  }

  async #decide(hit: Hit, options: DecideOptions): Promise<Decision> {
    return this.#withFailure(hit.event, options, async (call) => {
      const decision = await this.#coalescer.decide(hit, call);
      if (!decision.allowed || !decision.wait || this.#maxWaiting === 0) {
        return decision;
      }
      try {
        await this.#awaitTurn(decision.wait, call);
      } catch (error) {
        throw await this.#giveBack(decision, error);
      }
      return decision;
    });
  }

  async #awaitTurn(wait: number, call: Call): Promise<void> {
    const milliseconds = Math.ceil(wait * 1000);
    if (milliseconds > call.left()) {
      throw new CounterdError("unavailable", `the turn is in ${wait} s, later than the timeout: it was given back`);
    }
    const now = performance.now();
    if (this.waiting.size >= this.#maxWaiting) {
      this.waiting.forEach((other) => other.turn < now && this.waiting.delete(other));
    }
    if (this.waiting.size >= this.#maxWaiting) {
      throw new CounterdError("unavailable", "too many hits wait for their turns: this one was given back");
    }
    const hit = { turn: now + milliseconds };
    this.waiting.add(hit);
    let timer: ReturnType<typeof setTimeout> | undefined;
    try {
      await orAbort(new Promise<void>((resolve) => (timer = setTimeout(resolve, milliseconds))), call.signal);
    } finally {
      clearTimeout(timer);
      this.waiting.delete(hit);
    }
  }

  /** Gives the turn back, and returns why the hit does not wait. A turn that has come by then is used. */
  async #giveBack(decision: Decision, reason: unknown): Promise<unknown> {
    let maybeCounted = decision.reservation === undefined;
    if (decision.reservation !== undefined) {
      try {
        await this.release(decision.reservation, { timeout: GIVE_BACK_TIMEOUT });
      } catch {
        maybeCounted = true;
      }
    }
    if (!(reason instanceof CounterdError)) {
      return reason;
    }
    const message = reason.message.replace(/^counterd: /, "");
    return new CounterdError("unavailable", message, { decision: { ...decision, allowed: false }, maybeCounted });
  }

  async #settle(body: Record<string, unknown>, options: CallOptions): Promise<Answer> {
    if (typeof body.reservation !== "string") {
      throw new CounterdError("invalid", "the reservation is that of a decision");
    }
    return this.#call(options, async (call) =>
      this.#server.exchange("POST", "v1/settle", JSON.stringify(body), call.signal),
    );
  }
}

function featureQuery(features: Features): URLSearchParams {
  return new URLSearchParams(givenFeatures(features).map(([kind, value]) => ["feature", `${kind}:${value}`]));
}

/** Whole Unix seconds. */
function moment(at: Date): number {
  const milliseconds = at.getTime();
  if (Number.isNaN(milliseconds)) {
    throw new CounterdError("invalid", "at is a valid date");
  }
  return Math.floor(milliseconds / 1000);
}
