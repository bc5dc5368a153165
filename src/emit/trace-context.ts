import { isStorable } from '../database/storable-text.ts';

type OpenTelemetry = Pick<typeof import('@opentelemetry/api'), 'context' | 'propagation'>;

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

/**
 * Adds the active trace context to the headers, except for what they have already: the caller's `Traceparent` counts as
 * `traceparent`. A failure in tracing costs the trace, never the event.
 */
export function addTraceHeaders(headers: Record<string, string>): void {
  if (!openTelemetry) return;
  const injected: Record<string, string> = Object.create(null);
  try {
    openTelemetry.propagation.inject(openTelemetry.context.active(), injected);
  } catch {
    return;
  }
  const entries = Object.entries(injected);
  if (entries.length === 0 || !entries.every((entry) => entry.every(isStorableText))) return;
  const own = new Set(Object.keys(headers).map((name) => name.toLowerCase()));
  for (const [name, value] of entries) if (!own.has(name.toLowerCase())) headers[name] = value;
}

function isStorableText(value: unknown): boolean {
  return typeof value === 'string' && isStorable(value);
}
