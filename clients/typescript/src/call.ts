import { CounterdError } from "./decision.js";

/** Settings of one call. */
export interface CallOptions {
  /** The longest that the call may take, in milliseconds, with all that it waits for. */
  timeout?: number | undefined;
  /** Ends the call with the signal's reason. A hit may have been counted by then. */
  signal?: AbortSignal | undefined;
}

const MAX_TIMER = 2 ** 31 - 1;

/** Returns a timeout that clocks can take. */
export function checkTimeout(timeout: number): number {
  if (typeof timeout !== "number" || !(timeout > 0)) {
    throw new CounterdError("invalid", "timeout is a number of milliseconds above 0");
  }
  return timeout;
}

/** The time of one call: its signal aborts when the time is over, or the caller's signal aborts. */
export class Call {
  readonly signal: AbortSignal;
  /** The reason of the signal when the time is over. */
  readonly over: CounterdError;
  readonly #end: number;
  readonly #timer: ReturnType<typeof setTimeout>;
  readonly #callers: AbortSignal | undefined;
  readonly #onAbort: () => void;

  constructor(timeout: number, address: string, signal?: AbortSignal) {
    checkTimeout(timeout);
    const controller = new AbortController();
    this.signal = controller.signal;
    this.#end = performance.now() + timeout;
    this.#callers = signal;
    this.#onAbort = () => controller.abort(signal?.reason);
    this.over = new CounterdError("unavailable", `no answer within ${timeout} ms from ${address}`, {
      maybeCounted: true,
    });
    this.#timer = setTimeout(() => controller.abort(this.over), Math.min(timeout, MAX_TIMER));
    if (signal?.aborted) {
      this.#onAbort();
    }
    signal?.addEventListener("abort", this.#onAbort);
  }

  /** How many milliseconds are left. */
  left(): number {
    return this.#end - performance.now();
  }

  /** Frees the timer. */
  end(): void {
    clearTimeout(this.#timer);
    this.#callers?.removeEventListener("abort", this.#onAbort);
  }
}

/** Settles as the promise does, or rejects with the signal's reason as soon as it aborts. */
export function orAbort<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    if (signal.aborted) {
      abort();
    }
    signal.addEventListener("abort", abort);
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
