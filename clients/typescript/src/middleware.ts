import type { Client } from "./client.js";
import {
  CounterdError,
  QUOTA_EXCEEDED,
  checkOnFailure,
  decideWithout,
  type Decision,
  type Features,
  type OnFailure,
} from "./decision.js";
import { rateLimitHeaders, seconds } from "./headers.js";
import { eventName } from "./hit.js";

/** What a middleware limits, and how. */
export interface MiddlewareOptions<R> {
  /** The event that a request is a hit of; undefined: the request is not limited. */
  event: string | ((request: R) => string | undefined);
  /**
   * The features of a request, such as {ip: request.ip}. Values that are undefined or empty are left out, and values of
   * more than 1,024 bytes counted by their SHA-256. If no limit applies since ip is left out, onFailure decides.
   */
  features: (request: R) => Features | Promise<Features>;
  /** What a request costs, 0 to 1,000,000. Default: 1. */
  cost?: ((request: R) => number) | undefined;
  /** Instead of the client's. An error goes to the caller of the middleware. */
  onFailure?: OnFailure | undefined;
}

const decisions = new WeakMap<object, Decision>();

/** Returns the decision by which a middleware has admitted, or denied, a request. */
export function decisionOf(request: object): Decision | undefined {
  return decisions.get(request);
}

/** What a middleware does with a request: the headers to send, and the answer of its own if it has one. */
export interface Verdict {
  headers: Record<string, string>;
  answer: { status: number; body: string } | undefined;
  /** Releases the leases of the request. It never fails. */
  release: () => Promise<void>;
}

/** Returns the options, or throws what is wrong with them. */
export function checkOptions<R>(options: MiddlewareOptions<R>): MiddlewareOptions<R> {
  if (typeof options.event !== "function") {
    eventName(options.event);
  }
  if (options.onFailure !== undefined) {
    checkOnFailure(options.onFailure);
  }
  return options;
}

/** Hits the event of a request; undefined: the request is not limited. */
export async function decideRequest<R extends object>(
  client: Client,
  options: MiddlewareOptions<R>,
  request: R,
  signal: AbortSignal | undefined,
): Promise<Verdict | undefined> {
  const event = typeof options.event === "string" ? options.event : options.event(request);
  if (event === undefined) {
    return undefined;
  }
  const cost = options.cost?.(request) ?? 1;
  const decision = await hit(client, event, await prepare(await options.features(request)), cost, options, signal);
  decisions.set(request, decision);
  return {
    headers: rateLimitHeaders(decision),
    answer: decision.allowed ? undefined : answerOf(decision),
    release: holdLeases(client, decision, cost),
  };
}

/** Bytes of a feature's value that the server takes. */
const MAX_VALUE = 1024;

/**
 * Returns the features of a request that it has. A client chooses values, and must not end the decision by one: an
 * empty value is absent, and a value that is too long, or no text, is counted by its hash.
 */
async function prepare(features: Features): Promise<Features> {
  if (typeof features !== "object" || features === null || Array.isArray(features)) {
    return features; // the client throws
  }
  const prepared: Record<string, string | undefined> = {};
  for (const [kind, value] of Object.entries(features)) {
    const none = value === null || value === "" || (kind === "ip" && /^(?:\s*$|unix:|@)/.test(value ?? ""));
    prepared[kind] = none ? undefined : value;
    if (kind !== "ip" && typeof value === "string") {
      const bytes = new TextEncoder().encode(value);
      if (bytes.length > MAX_VALUE || /\p{Surrogate}/u.test(value)) {
        const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
        prepared[kind] = `sha256:${Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
      }
    }
  }
  return prepared;
}

/** Hits the event. If no limit applies to a request since it has no address, onFailure decides. */
async function hit<R>(
  client: Client,
  event: string,
  features: Features,
  cost: number,
  { onFailure }: MiddlewareOptions<R>,
  signal: AbortSignal | undefined,
): Promise<Decision> {
  try {
    return await client.hit(event, features, { cost, onFailure, signal });
  } catch (error) {
    const unlimited =
      error instanceof CounterdError &&
      error.kind === "invalid" &&
      error.faults.length === 1 &&
      error.faults[0]?.pointer === "/features";
    if (unlimited && "ip" in features && features.ip === undefined) {
      return decideWithout(event, error, onFailure ?? client.onFailure);
    }
    throw error;
  }
}

function answerOf(decision: Decision): { status: number; body: string } {
  if (decision.failed !== undefined) {
    const detail = "The rate limiter did not decide. The request was not served.";
    const body = { type: "about:blank", title: "Service Unavailable", status: 503, detail };
    return { status: 503, body: JSON.stringify(body) };
  }
  const denying = decision.limits.filter(
    ({ allowed, shadow, on_error, reset }) =>
      !allowed && !shadow && (on_error === undefined || on_error === "local" || reset === null),
  );
  const names = denying.map(({ name }) => name);
  let fits =
    decision.retry_after === null
      ? "it never fits"
      : `it fits in ${decision.retry_after} seconds, if nothing else comes`;
  const { may_fit_after } = decision;
  if (may_fit_after) {
    const unit = may_fit_after === 1 ? "second" : "seconds";
    fits += `. It may fit in ${may_fit_after} ${unit}, as reservations or leases are given back`;
  }
  const body = {
    type: QUOTA_EXCEEDED,
    title: "Request cannot be satisfied as assigned quota has been exceeded",
    status: 429,
    detail: `Denied by ${names.join(", ")}: ${fits}.`,
    "violated-policies": names,
    retry_after: decision.retry_after,
    may_fit_after: may_fit_after || undefined,
  };
  return { status: 429, body: JSON.stringify(body) };
}

/** The longest lease, in seconds: 30 days. */
const MAX_LEASE = 2_592_000;
/** At least so many milliseconds are between renewals, whatever a server says. */
const MIN_PAUSE = 1_000;

/** Renews the leases that an admitted hit has taken, until the function that it returns releases them. */
function holdLeases(client: Client, decision: Decision, cost: number): () => Promise<void> {
  const leases = decision.limits.filter(({ algorithm }) => algorithm === "concurrency");
  let { reservation } = decision;
  if (!decision.allowed || reservation === undefined || leases.length === 0) {
    return async () => undefined;
  }
  const length = leases.reduce((least, { window }) => Math.min(least, seconds(window) || 1), MAX_LEASE);
  let renewal = Promise.resolve();
  let timer: ReturnType<typeof setTimeout>;
  let ended = false;
  const renew = async (): Promise<void> => {
    try {
      reservation = await client.renew(reservation as string, `${length}s`);
    } catch {
      // The next one tries again; a lease that has ended is free.
    }
    if (!ended) {
      renewLater();
    }
  };
  const renewLater = (): void => {
    timer = setTimeout(() => (renewal = renew()), Math.max((length * 1000) / 3, MIN_PAUSE));
  };
  renewLater();
  return async () => {
    ended = true;
    clearTimeout(timer);
    await renewal;
    try {
      await client.settle(reservation as string, cost);
    } catch {
      // The lease ends by itself.
    }
  };
}
