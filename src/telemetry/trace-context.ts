import type { Context } from '@opentelemetry/api';

type OpenTelemetry = typeof import('@opentelemetry/api');

type Headers = Readonly<Record<string, string | undefined>>;

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
export function extractContext(api: OpenTelemetry, headers: Headers, base: Context): Context | undefined {
  try {
    const extracted = api.propagation.extract(base, headers, anyCase);
    return extracted === base ? undefined : extracted;
  } catch {
    return undefined;
  }
}

/** Emitters and brokers differ in how they write the name of a header. */
const anyCase = {
  keys: (headers: Headers) => Object.keys(headers),
  get(headers: Headers, name: string): string | undefined {
    if (Object.hasOwn(headers, name)) return headers[name];
    const lower = name.toLowerCase();
    const found = Object.keys(headers).find((key) => key.toLowerCase() === lower);
    return found === undefined ? undefined : headers[found];
  },
};
