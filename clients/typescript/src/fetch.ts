import type { Client } from "./client.js";
import { checkOptions, decideRequest, type MiddlewareOptions } from "./middleware.js";

/**
 * Returns a wrapper of fetch handlers, as edge runtimes, Hono and Deno have them: each request is a hit. The response
 * has RateLimit-Policy and RateLimit. It is a 429 with a problem document if a limit denies, a 503 if there is no
 * decision and the request is denied for it. Leases are renewed until the handler returns its response, and released
 * then.
 */
export function fetchMiddleware(
  client: Client,
  options: MiddlewareOptions<Request>,
): <Rest extends unknown[]>(
  handler: (request: Request, ...rest: Rest) => Response | Promise<Response>,
) => (request: Request, ...rest: Rest) => Promise<Response> {
  checkOptions(options);
  return (handler) =>
    async (request, ...rest) => {
      const verdict = await decideRequest(client, options, request, request.signal);
      if (verdict === undefined) {
        return handler(request, ...rest);
      }
      const { answer, headers, release } = verdict;
      if (answer !== undefined) {
        headers["Content-Type"] = "application/problem+json";
        return new Response(answer.body, { status: answer.status, headers });
      }
      try {
        return withHeaders(await handler(request, ...rest), headers);
      } finally {
        await release();
      }
    };
}

/** The headers of a response may be immutable. One that switches protocols is left as it is. */
function withHeaders(response: Response, headers: Record<string, string>): Response {
  if (response.status < 200 || Object.keys(headers).length === 0) {
    return response;
  }
  const copy = new Response(response.body, response);
  for (const [name, value] of Object.entries(headers)) {
    copy.headers.set(name, value);
  }
  return copy;
}
