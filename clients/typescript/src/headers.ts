import type { Decision, LimitState } from "./decision.js";

/** Its numbers are bounded, so that a server that is not counterd's cannot make their parsing slow. */
const DURATION = /^(?:[0-9]{1,7}[smhd]){1,4}$/;
const UNITS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86400 };

/** Returns a duration in seconds. A unit of a calendar, such as month, has no fixed length. */
export function seconds(window: string): number | undefined {
  if (!DURATION.test(window)) {
    return undefined;
  }
  const parts = [...window.matchAll(/(\d+)([smhd])/g)];
  return parts.reduce((sum, [, n, unit]) => sum + Number(n) * (UNITS[unit as string] as number), 0);
}

/** A string of RFC 9651. The rules have names of printable ASCII, without quotes and backslashes. */
const quote = (name: string): string => `"${name.replace(/[^ !#-[\]-~]/g, "_")}"`;

/** The store could not be asked: what remains is not known. */
const unanswered = (limit: LimitState): boolean => limit.on_error === "allow" || limit.on_error === "deny";

/**
 * Returns the header fields by which a service tells its own client of a decision's limits: RateLimit-Policy
 * and RateLimit, as in revision 11 of draft-ietf-httpapi-ratelimit-headers, and of a denial Retry-After. They equal
 * the fields of its answer to a single hit, but for the window of a calendar, whose length only
 * the server knows. A decision by a failure has none.
 */
export function rateLimitHeaders(decision: Decision): Record<string, string> {
  const headers: Record<string, string> = {};
  if (decision.failed !== undefined) {
    return headers;
  }
  const limits = decision.limits.filter((limit) => !limit.shadow);
  const policies = limits.map((limit) => {
    const policy = `${quote(limit.name)};q=${limit.limit}`;
    if (limit.algorithm === "concurrency") {
      return `${policy};qu="concurrent-requests"`;
    }
    const window = seconds(limit.window);
    return window === undefined ? policy : `${policy};w=${window}`;
  });
  const states = limits
    .filter((limit) => !unanswered(limit))
    .map((limit) => {
      const until = limit.allowed || limit.reset === null ? "" : `;t=${limit.reset}`;
      return `${quote(limit.name)};r=${limit.remaining}${until}`;
    });
  if (policies.length > 0) {
    headers["RateLimit-Policy"] = policies.join(", ");
  }
  if (states.length > 0) {
    headers.RateLimit = states.join(", ");
  }
  if (!decision.allowed && decision.retry_after !== null) {
    headers["Retry-After"] = String(decision.may_fit_after || decision.retry_after);
  }
  return headers;
}
