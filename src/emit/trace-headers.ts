import { isStorable } from '../database/storable-text.ts';
import { emitContext, isTracing } from '../telemetry/spans.ts';
import { loadedTracing } from '../telemetry/trace-context.ts';
import { headersMax, headersTextBytesMax, headerTextBytes } from './header-limits.ts';

/**
 * Adds the trace context of the event, a span `emit` below the active one, to the headers, except for what they have already: the
 * caller's `Traceparent` counts as `traceparent`, and there is no span then. A failure in tracing costs the trace, never the event.
 * A header for which the limits leave no room is left out: with it the database would refuse the event.
 */
export function addTraceHeaders(headers: Record<string, string>, { id, type }: { id: string; type: string }): void {
  const api = loadedTracing();
  if (!api) return;
  const injected: Record<string, string> = Object.create(null);
  try {
    if (!isTracing()) return;
    const isTraced = Object.keys(headers).some((name) => name.toLowerCase() === 'traceparent');
    const own = isTraced ? undefined : emitContext(id, type);
    api.propagation.inject(own ?? api.context.active(), injected);
  } catch {
    return;
  }
  const entries = Object.entries(injected);
  if (entries.length === 0 || !entries.every((entry) => entry.every(isStorableText))) return;
  const present = Object.entries(headers);
  const own = new Set(present.map(([name]) => name.toLowerCase()));
  let count = present.length;
  let bytes = present.reduce((sum, [name, value]) => sum + headerTextBytes(name, value), 0);
  for (const [name, value] of entries) {
    if (own.has(name.toLowerCase())) continue;
    count++;
    bytes += headerTextBytes(name, value);
    // The W3C propagators inject traceparent first, and the headers after it are of no use without it.
    if (count > headersMax || bytes > headersTextBytesMax) return;
    headers[name] = value;
  }
}

function isStorableText(value: unknown): boolean {
  return typeof value === 'string' && isStorable(value);
}
