import type { Context } from '@opentelemetry/api';

type OpenTelemetry = typeof import('@opentelemetry/api');

/** The headers of a message. A name counts in any case. */
export type TraceHeaders = Readonly<Record<string, string | undefined>>;

/** `null`: not installed. `undefined`: not loaded yet. */
let openTelemetry: OpenTelemetry | null | undefined;
let loading: Promise<void> | undefined;

export function isTracingLoaded(): boolean {
  return openTelemetry !== undefined;
}

/**
 * Loads @opentelemetry/api if the application has it. Never rejects. With `catch` directly behind import(), a bundler
 * accepts that the package is missing.
 */
export function loadTracing(): Promise<void> {
  loading ??= import('@opentelemetry/api')
    .catch(() => null)
    .then((api) => {
      openTelemetry = api;
    });
  return loading;
}

/** `undefined` until `loadTracing` has resolved, and in an application without @opentelemetry/api. */
export function loadedTracing(): OpenTelemetry | undefined {
  return openTelemetry ?? undefined;
}

/** The trace context of a message on top of `base`, or `undefined`: it has none. A failure in tracing costs the trace only. */
export function extractContext(api: OpenTelemetry, headers: TraceHeaders, base: Context): Context | undefined {
  try {
    const extracted = api.propagation.extract(base, headers, anyCase);
    return extracted === base ? undefined : extracted;
  } catch {
    return undefined;
  }
}

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

/** Emitters and brokers differ in how they write the name of a header. */
const anyCase = {
  keys: (headers: TraceHeaders) => Object.keys(headers),
  get(headers: TraceHeaders, name: string): string | undefined {
    if (Object.hasOwn(headers, name)) return headers[name];
    const lower = name.toLowerCase();
    const found = Object.keys(headers).find((key) => key.toLowerCase() === lower);
    return found === undefined ? undefined : headers[found];
  },
};
