import { CounterdError, type Features } from "./decision.js";

/** One hit of a batch. */
export interface Hit {
  event: string;
  features: Features;
  /** 0 to 1,000,000; default 1. */
  cost?: number | undefined;
  /** A duration such as "30s", up to 24h: the cost is an estimate, to be settled within that time. */
  reserve?: string | undefined;
}

const EVENT = /^[a-z][a-z0-9_.-]{0,63}$/;
const MAX_KINDS = 16;

/** Returns the name of an event. Another text could lead to another route. */
export function eventName(event: unknown): string {
  if (typeof event !== "string" || !EVENT.test(event)) {
    throw new CounterdError("invalid", "the event's name is 1 to 64 of a-z, 0-9, _, . and -, and begins with a letter");
  }
  return event;
}

// A half of a surrogate pair is no UTF-8.
const isText = (value: unknown): value is string => typeof value === "string" && !/\p{Surrogate}/u.test(value);

/** Returns the features that are given. */
export function givenFeatures(features: Features): [kind: string, value: string][] {
  if (typeof features !== "object" || features === null || Array.isArray(features)) {
    throw new CounterdError("invalid", "features are an object of values by kind");
  }
  const given = Object.entries(features).filter(([, value]) => value !== undefined);
  if (given.length > MAX_KINDS) {
    throw new CounterdError("invalid", `a hit has at most ${MAX_KINDS} features`);
  }
  for (const [kind, value] of given) {
    if (!isText(kind) || !isText(value)) {
      throw new CounterdError("invalid", "a feature's value is a string of whole characters");
    }
  }
  return given as [string, string][];
}

/** Returns a cost. The server reports one that is out of range. */
export function wholeCost(cost: unknown): number {
  if (!Number.isSafeInteger(cost)) {
    throw new CounterdError("invalid", "the cost is a whole number");
  }
  return cost as number;
}

/** Returns a duration as the contract writes it. The server reports one that is malformed. */
export function duration(text: unknown, name: string): string {
  if (!isText(text)) {
    throw new CounterdError("invalid", `${name} is a duration such as "30s"`);
  }
  return text;
}

/**
 * Returns the JSON of a hit as a member of a batch, and by itself. It throws what would be a fault of
 * the whole batch: the server reports all other faults with the hit that has them.
 */
export function encodeHit(hit: Hit): { event: string; json: string; alone: string } {
  const event = eventName(hit.event);
  const body: Record<string, unknown> = { features: Object.fromEntries(givenFeatures(hit.features)) };
  if (hit.cost !== undefined) {
    body.cost = wholeCost(hit.cost);
  }
  if (hit.reserve !== undefined) {
    body.reserve = duration(hit.reserve, "reserve");
  }
  return { event, json: JSON.stringify({ event, ...body }), alone: JSON.stringify(body) };
}
