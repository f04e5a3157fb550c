/** A decision, with the fields of docs/http.md. */
export interface Decision {
  allowed: boolean;
  event: string;
  /** The second in which the hit was stamped. */
  at: string;
  /** In how many seconds all limits admit the hit, if nothing else comes; null: never. */
  retry_after: number | null;
  /** The same in milliseconds, if it is below a second, or a queue is full. */
  retry_after_ms?: number;
  /** After how many seconds an open reservation or lease could make room, if that is before retry_after. */
  may_fit_after?: number;
  /** How many seconds an admitted hit waits for its turn in a queue. */
  wait?: number;
  /** Names what was reserved, the leases, or the turn, for settle, release and renew. */
  reservation?: string;
  limits: LimitState[];
  /** Why there is no decision of the limits: onFailure, or a rule's on_error, has decided instead. */
  failed?: CounterdError;
}

/** The state of one limit after a hit. */
export interface LimitState {
  name: string;
  /** The kind and value that the limit counts by; empty: the event as a whole. */
  feature: string;
  limit: number;
  window: string;
  /** How the limit counts; absent: by a sliding window. */
  algorithm?: string;
  count: number;
  remaining: number;
  /** In how many seconds this hit fits this limit; null: never. */
  reset: number | null;
  allowed: boolean;
  /** False: count is an upper bound. */
  exact?: false;
  /** The denial of this limit is reported, not enforced. */
  shadow?: true;
  over?: true;
  incomplete?: true;
  unreserved?: true;
  /** The store did not answer, and this was done instead. */
  on_error?: "allow" | "deny" | "local";
}

/** Values by kind, such as {ip: "203.0.113.9"}. An undefined value is left out. */
export type Features = Readonly<Record<string, string | undefined>>;

/** One thing wrong with a request, with its place. */
export interface Fault {
  detail: string;
  pointer?: string;
  parameter?: string;
}

/**
 * Kinds of errors:
 * - invalid: the request is at fault (4xx but those below), or the client refused to send it
 * - refused: 401, 403: the token is missing, unknown, or not valid for this
 * - unknown: 404: the rules have no such event
 * - settled: 409: the reservation was settled with another cost
 * - ended: 410: the reservation, or the lease, has ended
 * - unavailable: no connection, no answer in time, or 5xx; also a 429 of a proxy
 * - unexpected: the answer is not one of counterd's, such as a proxy's 404
 */
export type ErrorKind = "invalid" | "refused" | "unknown" | "settled" | "ended" | "unavailable" | "unexpected";

interface ErrorDetails {
  httpStatus?: number | undefined;
  faults?: Fault[] | undefined;
  requestId?: string | undefined;
  decision?: Decision | undefined;
  maybeCounted?: boolean;
  cause?: unknown;
}

/** What prevents a call. Its text repeats no feature's value, and no token. */
export class CounterdError extends Error {
  override readonly name = "CounterdError";
  readonly kind: ErrorKind;
  /** The status of the answer, if there is one. */
  readonly httpStatus: number | undefined;
  readonly faults: readonly Fault[];
  /** The server's log has it. */
  readonly requestId: string | undefined;
  /** What counterd decided, if a rule refuses what it cannot count, or a turn in a queue was given back. */
  readonly decision: Decision | undefined;
  /** Whether the server may have counted the hit all the same. False: it has not. */
  maybeCounted: boolean;

  constructor(kind: ErrorKind, message: string, details: ErrorDetails = {}) {
    super(`counterd: ${message}`, "cause" in details ? { cause: details.cause } : undefined);
    this.kind = kind;
    this.httpStatus = details.httpStatus;
    this.faults = details.faults ?? [];
    this.requestId = details.requestId;
    this.decision = details.decision;
    this.maybeCounted = details.maybeCounted ?? false;
  }
}

/**
 * What decides where counterd has not: the error, an admission, or a denial. The words are those of a rule's on_error;
 * open is allow, and closed is deny.
 */
export type OnFailure = "error" | "allow" | "deny" | "open" | "closed";

/** Returns the setting. */
export function checkOnFailure(onFailure: OnFailure): OnFailure {
  if (!["error", "allow", "deny", "open", "closed"].includes(onFailure)) {
    const given = JSON.stringify(onFailure);
    throw new CounterdError("invalid", `onFailure must be "error", "allow" or "deny", not ${given}`);
  }
  return onFailure;
}

/** Returns the decision in place of an error that is no fault of the caller, or throws the error. */
export function decideFailure(event: string, error: unknown, onFailure: OnFailure): Decision {
  const failure = error instanceof CounterdError && (error.kind === "unavailable" || error.kind === "unexpected");
  if (!failure) {
    throw error;
  }
  return decideWithout(event, error, onFailure);
}

/** Returns the decision in place of an error, or throws the error. */
export function decideWithout(event: string, error: CounterdError, onFailure: OnFailure): Decision {
  if (checkOnFailure(onFailure) === "error") {
    throw error;
  }
  // A rule that refuses what it cannot count outranks the client, and so does a queue.
  if (error.decision !== undefined) {
    return { ...error.decision, failed: error };
  }
  const allowed = onFailure === "allow" || onFailure === "open";
  return {
    allowed,
    event,
    at: new Date().toISOString().replace(/\.\d+/, ""),
    retry_after: allowed ? 0 : 1,
    limits: [],
    failed: error,
  };
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const isText = (value: unknown): boolean => typeof value === "string";
const isName = (value: unknown): boolean => isText(value) && value !== "";
const isBoolean = (value: unknown): boolean => typeof value === "boolean";
/** Of the server's 64 bits, as far as a number of JavaScript tells. */
const isNumber = (value: unknown): boolean => typeof value === "number" && value >= 0 && value <= 2 ** 63;
const isCount = (value: unknown): boolean => Number.isInteger(value) && isNumber(value);
const isSeconds = (value: unknown): boolean => value === null || isCount(value);
const isListOf =
  (isElement: (value: unknown) => boolean) =>
  (value: unknown): boolean =>
    Array.isArray(value) && value.every(isElement);

type Members = readonly (readonly [name: string, isSound: (value: unknown) => boolean])[];

const LIMIT: Members = Object.entries({
  name: isName,
  feature: isText,
  limit: isCount,
  window: isText,
  count: isCount,
  remaining: isCount,
  reset: isSeconds,
  allowed: isBoolean,
});
const LIMIT_OPTIONS: Members = Object.entries({
  algorithm: isText,
  exact: isBoolean,
  shadow: isBoolean,
  over: isBoolean,
  incomplete: isBoolean,
  unreserved: isBoolean,
  on_error: isText,
});
const isLimit = (value: unknown): boolean => hasMembers(value, LIMIT, LIMIT_OPTIONS);
const DECISION: Members = Object.entries({
  allowed: isBoolean,
  event: isName,
  at: isName,
  retry_after: isSeconds,
  limits: isListOf(isLimit),
});
const DECISION_OPTIONS: Members = Object.entries({
  retry_after_ms: isCount,
  may_fit_after: isCount,
  wait: isNumber,
  reservation: isText,
});
const DECISION_MEMBERS = [...DECISION, ...DECISION_OPTIONS].map(([name]) => name);
const FAULT_OPTIONS: Members = Object.entries({ detail: isText, pointer: isText, parameter: isText });
const isFault = (value: unknown): boolean => hasMembers(value, [], FAULT_OPTIONS);
const PROBLEM_OPTIONS: Members = Object.entries({ type: isText, title: isText, detail: isText, errors: isListOf(isFault) });

/** Reports whether a value is an object that has all members but the options, each as it has to be. */
function hasMembers(value: unknown, members: Members, options: Members): value is Record<string, unknown> {
  return (
    isObject(value) &&
    members.every(([name, isSound]) => isSound(value[name])) &&
    options.every(([name, isSound]) => value[name] === undefined || isSound(value[name]))
  );
}

/** Returns the decision that a body is, without the fields of the problem document around it. */
export function readDecision(body: unknown): Decision | undefined {
  if (!hasMembers(body, DECISION, DECISION_OPTIONS)) {
    return undefined;
  }
  const members = DECISION_MEMBERS.filter((name) => body[name] !== undefined).map((name) => [name, body[name]]);
  return Object.fromEntries(members) as Decision;
}

/** Reports whether a body is a problem document. */
export function isProblem(body: unknown): body is Record<string, unknown> {
  return hasMembers(body, [], [...PROBLEM_OPTIONS, ["status", isCount]]);
}

/** Returns the decision that a result of a batch is, or the error. A result that is neither, or both, is undefined. */
export function readResult(result: unknown, requestId: string | undefined): Decision | CounterdError | undefined {
  if (!hasMembers(result, [["status", isCount]], [])) {
    return undefined;
  }
  const status = result.status as number;
  const hasProblem = PROBLEM_OPTIONS.some(([name]) => name in result);
  if (!DECISION_MEMBERS.some((name) => name in result)) {
    const fits = hasProblem && status >= 400 && isProblem(result);
    return fits ? readProblem(status, result, requestId) : undefined;
  }
  const decision = hasProblem ? undefined : readDecision(result);
  if (decision === undefined || ![200, 429, 503].includes(status) || decision.allowed !== (status === 200)) {
    return undefined;
  }
  return status === 503 ? readProblem(status, result, requestId) : decision;
}

/** The type of the problem document that a denial is. */
export const QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded";

const KINDS: Readonly<Record<number, ErrorKind>> = { 404: "unknown", 409: "settled", 410: "ended" };

/** Returns the kind of an error. A proxy's answer has no problem document. */
function kindOf(status: number, isProblem: boolean): ErrorKind {
  if (status === 401 || status === 403) {
    return "refused";
  }
  // A 429 of a proxy: counterd's own is a decision.
  if (status >= 500 || status === 429) {
    return "unavailable";
  }
  if (status < 400 || !isProblem) {
    return "unexpected";
  }
  return KINDS[status] ?? "invalid";
}

/** Makes an error of an answer that is not a success. Without a problem document it is a proxy's. */
export function readProblem(
  status: number,
  problem: Record<string, unknown> | undefined,
  requestId: string | undefined,
): CounterdError {
  const { title = "", detail = "", errors = [] } = problem ?? {};
  const refusal = status === 503 ? readDecision(problem) : undefined;
  const message = [`${status} ${title}`.trim(), detail].filter(Boolean).join(": ");
  return new CounterdError(kindOf(status, problem !== undefined), message, {
    httpStatus: status,
    faults: errors as Fault[],
    requestId,
    decision: refusal?.allowed === false ? refusal : undefined,
    // A proxy may have passed the hit on.
    maybeCounted: status >= 500 || status === 429 || status < 400 || problem === undefined,
  });
}
