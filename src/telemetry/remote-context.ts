import { extractContext, isTracingLoaded, loadedTracing, loadTracing } from './trace-context.ts';

// Public. A file of its own, because the declarations of trace-context.ts need @opentelemetry/api, which is optional.

/** The headers of a message. A name counts in any case. */
export type TraceHeaders = Readonly<Record<string, string | undefined>>;

/**
 * Calls `fn` in the trace context that came with a message (`traceparent`, `tracestate`, or what the application's propagator
 * reads), and resolves with its result. A span that is active already and belongs to the same trace stays active: it is that of
 * an instrumented client or HTTP server. Without @opentelemetry/api, or without a context in the headers, `fn` runs as it is.
 */
export async function withRemoteContext<Result>(
  headers: TraceHeaders,
  fn: () => Result | PromiseLike<Result>,
): Promise<Result> {
  if (!isTracingLoaded()) await loadTracing();
  const api = loadedTracing();
  const remote = api && extractContext(api, headers, api.ROOT_CONTEXT);
  if (!api || !remote) return fn();
  const activeTrace = api.trace.getSpanContext(api.context.active())?.traceId;
  if (activeTrace !== undefined && activeTrace === api.trace.getSpanContext(remote)?.traceId) return fn();
  return api.context.with(remote, fn);
}
