import type { Client } from "./client.js";
import { QUOTA_EXCEEDED, type Decision, type Features, type OnFailure } from "./decision.js";
import { rateLimitHeaders, seconds } from "./headers.js";

/** What a middleware limits, and how. */
export interface MiddlewareOptions<R> {
  /** The event that a request is a hit of; undefined: the request is not limited. */
  event: string | ((request: R) => string | undefined);
  /** The features of a request, such as {ip: request.ip}. */
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
  const { onFailure } = options;
  const decision = await client.hit(event, await options.features(request), { cost, onFailure, signal });
  decisions.set(request, decision);
  return {
    headers: rateLimitHeaders(decision),
    answer: decision.allowed ? undefined : answerOf(decision),
    release: holdLeases(client, decision, cost),
  };
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

/** Renews the leases that an admitted hit has taken, until the function that it returns releases them. */
function holdLeases(client: Client, decision: Decision, cost: number): () => Promise<void> {
  const leases = decision.limits.filter(({ algorithm }) => algorithm === "concurrency");
  let { reservation } = decision;
  if (!decision.allowed || reservation === undefined || leases.length === 0) {
    return async () => undefined;
  }
  const length = Math.min(...leases.map(({ window }) => seconds(window) ?? 1));
  let renewal = Promise.resolve();
  const timer = setInterval(
    () => {
      renewal = renewal.then(async () => {
        try {
          reservation = await client.renew(reservation as string, `${length}s`);
        } catch {
          // The next one tries again; a lease that has ended is free.
        }
      });
    },
    (length * 1000) / 3,
  );
  return async () => {
    clearInterval(timer);
    await renewal;
    try {
      await client.settle(reservation as string, cost);
    } catch {
      // The lease ends by itself.
    }
  };
}
