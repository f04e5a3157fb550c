import { orAbort } from "./call.js";
import { CounterdError, isObject, isProblem, readProblem } from "./decision.js";

/** Returns the token of a request. */
export type Token = string | (() => string | Promise<string>);

/** An answer with its body read: an object, or undefined. With a status of failure it is a problem document. */
export interface Answer {
  status: number;
  body: Record<string, unknown> | undefined;
  requestId: string | undefined;
}

/** 64 KiB for each hit of the largest batch. */
const MAX_ANSWER = 64 * 2 ** 20;

/** The server that exchanges are made with. */
export class Server {
  /** The URL as errors name it. */
  readonly address: string;
  readonly #base: URL;
  readonly #token: Token | undefined;
  readonly #fetch: typeof fetch;

  constructor(url: string, token: Token | undefined, fetcher: typeof fetch) {
    let base: URL;
    try {
      base = new URL(url);
    } catch {
      throw new CounterdError("invalid", "url is written like http://127.0.0.1:8080");
    }
    const plain = !base.username && !base.password && !base.search && !base.hash;
    if (!plain || (base.protocol !== "http:" && base.protocol !== "https:")) {
      throw new CounterdError(
        "invalid",
        "url is written like http://127.0.0.1:8080, without a user, query or fragment",
      );
    }
    if (!base.pathname.endsWith("/")) {
      base.pathname += "/";
    }
    this.#base = base;
    this.address = base.href.replace(/\/$/, "");
    if (token !== undefined && typeof token !== "function") {
      checkToken(token, "invalid");
    }
    this.#token = token;
    this.#fetch = fetcher;
  }

  /** Makes one exchange, whatever the status of its answer, until the signal aborts. */
  async exchange(method: string, path: string, body: string | undefined, signal: AbortSignal): Promise<Answer> {
    const headers: Record<string, string> = {};
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
    }
    if (this.#token !== undefined) {
      headers.Authorization = `Bearer ${await orAbort(this.#readToken(this.#token), signal)}`;
    }
    signal.throwIfAborted();
    const init: RequestInit = { method, headers, redirect: "manual", signal };
    if (body !== undefined) {
      init.body = body;
    }
    const fetcher = this.#fetch; // a browser's fetch is no method of another object
    const read = async (): Promise<Answer> => answerOf(await fetcher(new URL(path, this.#base), init));
    try {
      return await orAbort(read(), signal);
    } catch (error) {
      if (signal.aborted) {
        throw signal.reason;
      }
      if (error instanceof CounterdError) {
        throw error;
      }
      throw new CounterdError("unavailable", `cannot reach ${this.address}: ${reasonOf(error)}`, {
        cause: error,
        maybeCounted: true,
      });
    }
  }

  async #readToken(token: Token): Promise<string> {
    let text: unknown;
    try {
      text = typeof token === "string" ? token : await token();
    } catch (error) {
      throw new CounterdError("refused", "the token function failed", { cause: error });
    }
    return checkToken(text, "refused");
  }
}

/** Returns the token. If no header can carry it, throws an error of that kind. */
function checkToken(token: unknown, kind: "invalid" | "refused"): string {
  if (typeof token === "string" && /^[\x21-\x7e]+$/.test(token)) {
    return token;
  }
  throw new CounterdError(
    kind,
    "the token is empty, or contains white space, control or non-ASCII characters: trim what was read, such as a newline at its end",
  );
}

/** Returns the code of a fault, such as ECONNREFUSED. Its text may quote the request. */
function reasonOf(error: unknown): string {
  const { cause, code, name } = error as { cause?: { code?: unknown }; code?: unknown; name?: unknown };
  const texts = [cause?.code, code, name, "the exchange failed"];
  return texts.find((text) => typeof text === "string") as string;
}

async function answerOf(response: Response): Promise<Answer> {
  const text = await readText(response);
  const media = response.headers.get("Content-Type")?.split(";")[0]?.trim().toLowerCase();
  const requestId = response.headers.get("X-Request-Id") ?? undefined;
  // A browser shows nothing of a redirect, not even its status.
  const status = response.type === "opaqueredirect" ? 302 : response.status;
  const wanted = response.ok ? "application/json" : "application/problem+json";
  let body: unknown;
  if (media === wanted && text !== undefined) {
    try {
      body = JSON.parse(text);
    } catch {
      body = undefined;
    }
  }
  const isBody = response.ok ? isObject : isProblem;
  return { status, body: isBody(body) ? body : undefined, requestId };
}

/** Returns the text of a body. Undefined: it is not UTF-8. */
async function readText(response: Response): Promise<string | undefined> {
  if (response.body === null) {
    return "";
  }
  const reader = response.body.getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    size += value?.byteLength ?? 0;
    if (size > MAX_ANSWER) {
      void reader.cancel().catch(() => undefined);
      throw new CounterdError("unexpected", `the answer is longer than ${MAX_ANSWER} bytes`, {
        httpStatus: response.status,
        maybeCounted: true,
      });
    }
    try {
      text += decoder.decode(value, { stream: !done });
    } catch {
      void reader.cancel().catch(() => undefined);
      return undefined;
    }
    if (done) {
      return text;
    }
  }
}

/** Returns the body of a success, or throws what is wrong with the answer. */
export function success(answer: Answer): Record<string, unknown> {
  const { status, body, requestId } = answer;
  if (status < 200 || status > 299) {
    throw readProblem(status, body, requestId);
  }
  if (status !== 200 || body === undefined) {
    throw unexpected(answer);
  }
  return body;
}

/** Returns the error of a success that is not counterd's. A proxy may have passed the hit on. */
export function unexpected(
  { status, requestId }: Answer,
  reason = "it is not what the contract has",
): CounterdError {
  return new CounterdError("unexpected", `the answer is unexpected: ${reason}`, {
    httpStatus: status,
    requestId,
    maybeCounted: true,
  });
}
