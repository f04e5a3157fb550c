import type { Client } from "./client.js";
import { checkOptions, decideRequest, type MiddlewareOptions, type Verdict } from "./middleware.js";

/** What the middleware needs of a response of Node's http. */
export interface NodeResponse {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body: string): unknown;
  on(event: "close", listener: () => void): unknown;
}

/**
 * Returns a middleware for Express, and for other frameworks with (request, response, next): each request is a
 * hit. It sets RateLimit-Policy and RateLimit, and answers 429 with a problem document if a limit denies, 503 if there
 * is no decision and the request is denied for it. Leases are renewed until the response has ended, and released
 * then. A client that leaves while it waits for its turn in a queue gives the turn back.
 */
export function expressMiddleware<Request extends object, Response extends NodeResponse>(
  client: Client,
  options: MiddlewareOptions<Request>,
): (request: Request, response: Response, next: (error?: unknown) => void) => void {
  checkOptions(options);
  return (request, response, next) => {
    const left = new AbortController();
    let release: (() => Promise<void>) | undefined;
    response.on("close", () => {
      left.abort();
      void release?.();
    });
    const serve = (verdict: Verdict | undefined): void => {
      release = verdict?.release;
      if (left.signal.aborted) {
        void release?.();
        return;
      }
      for (const [name, value] of Object.entries(verdict?.headers ?? {})) {
        response.setHeader(name, value);
      }
      if (verdict?.answer === undefined) {
        next();
        return;
      }
      response.statusCode = verdict.answer.status;
      response.setHeader("Content-Type", "application/problem+json");
      response.end(verdict.answer.body);
    };
    const fail = (error: unknown): void => {
      if (!left.signal.aborted) {
        next(error);
      }
    };
    void decideRequest(client, options, request, left.signal).then(serve).catch(fail);
  };
}
