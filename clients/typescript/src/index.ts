/** The client of counterd, the distributed rate limiter and event counter. */
export type { CallOptions } from "./call.js";
export { Client, type ClientOptions, type DecideOptions, type Result } from "./client.js";
export {
  CounterdError,
  type Decision,
  type ErrorKind,
  type Fault,
  type Features,
  type LimitState,
  type OnFailure,
} from "./decision.js";
export { expressMiddleware, type NodeResponse } from "./express.js";
export { fetchMiddleware } from "./fetch.js";
export { rateLimitHeaders } from "./headers.js";
export type { Hit } from "./hit.js";
export { decisionOf, type MiddlewareOptions } from "./middleware.js";
export type { Token } from "./server.js";
