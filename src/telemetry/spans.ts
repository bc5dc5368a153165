import type { Attributes, Context, Link, Span, SpanKind } from '@opentelemetry/api';
import { type TraceHeaders, withRemoteContext } from './remote-context.ts';
import { extractContext, isTracingLoaded, loadedTracing, loadTracing } from './trace-context.ts';

/** What spans tell about an event or message. Never its payload. */
export interface TracedMessage {
  id: string;
  headers: TraceHeaders;
}

/** One operation on messages, in the words of OpenTelemetry's messaging conventions. */
export interface MessagingOperation {
  name: 'emit' | 'publish' | 'process';
  /** `postcommit`, or the kind of broker. */
  system: string;
  /** Event type, or topic. `undefined`: several. */
  destination: string | undefined;
  /** More attributes, e.g. the handler's name. */
  attributes?: Attributes;
}

const types = { emit: 'create', publish: 'send', process: 'process' } as const;
/** As numbers, because the enum is a value of a package that may be missing: CLIENT, PRODUCER, CONSUMER. */
const kinds: Record<MessagingOperation['name'], SpanKind> = { emit: 3, publish: 2, process: 4 };
/** SDKs keep 128 links of a span by default. */
const linksMax = 128;
const textMax = 255;

/**
 * Whether the application has an OpenTelemetry SDK. Without one there is no propagator, and nothing is traced: checked before
 * anything else, because reading the headers of an event costs more than the check.
 */
export function isTracing(): boolean {
  const api = loadedTracing();
  try {
    return api !== undefined && api.propagation.fields().length > 0;
  } catch {
    return false; // The application's propagator is broken.
  }
}

/** The context of a new span for an event that is emitted, which is its creation context. The span has ended already. */
export function emitContext(id: string, type: string): Context | undefined {
  const api = loadedTracing();
  if (!api || !isTracing()) return undefined;
  const active = api.context.active();
  const operation: MessagingOperation = { name: 'emit', system: 'postcommit', destination: type };
  const span = startSpan(operation, [{ id, headers: {} }], active);
  span?.end();
  return span && api.trace.setSpan(active, span);
}

/**
 * Calls `fn` in a span. The span of one message is a child of the message's creation context; that of several has none, because they
 * belong to different traces. Both link to the creation contexts. A failure in tracing costs the trace only.
 */
export function inSpan<Result>(
  operation: MessagingOperation,
  messages: readonly TracedMessage[],
  fn: () => Result,
  failureOf: (result: Awaited<Result>) => string | undefined = () => undefined,
  parent?: Context,
): Result {
  const api = loadedTracing();
  const base = api && (parent ?? parentOf(messages) ?? api.ROOT_CONTEXT);
  const span = api && base && startSpan(operation, messages, base);
  if (!api || !base || !span) return fn();
  const end = (failure: string | undefined) => {
    if (failure !== undefined) span.setStatus({ code: 2, message: failure.slice(0, textMax) });
    span.end();
  };
  let result: Result;
  try {
    result = api.context.with(api.trace.setSpan(base, span), fn);
  } catch (error) {
    end(String(error));
    throw error;
  }
  if (typeof (result as PromiseLike<unknown> | undefined)?.then !== 'function') {
    end(failureOf(result as Awaited<Result>));
    return result;
  }
  // One promise, for the caller and for the span: a query of Knex or Drizzle runs each time its `then` is called. Called here, so
  // that the query runs in the span as well.
  const settled = new Promise<Awaited<Result>>((resolve, reject) =>
    api.context.with(api.trace.setSpan(base, span), () =>
      (result as PromiseLike<Awaited<Result>>).then(resolve, reject),
    ),
  );
  settled.then(
    (value) => end(failureOf(value)),
    (error) => end(String(error)),
  );
  return settled as Result;
}

/**
 * The same for a message that a broker has delivered. A span of the message's trace that is active already, such as that of an
 * instrumented client, is the parent.
 */
export async function inRemoteSpan<Result>(
  operation: MessagingOperation,
  message: TracedMessage,
  fn: () => Promise<Result>,
): Promise<Result> {
  if (!isTracingLoaded()) await loadTracing();
  if (!isTracing()) return fn();
  return withRemoteContext(message.headers, () =>
    inSpan(operation, [message], fn, undefined, loadedTracing()?.context.active()),
  );
}

function parentOf(messages: readonly TracedMessage[]): Context | undefined {
  const api = loadedTracing();
  const [message] = messages;
  return api && message && messages.length === 1 ? extractContext(api, message.headers, api.ROOT_CONTEXT) : undefined;
}

function startSpan(
  { name, system, destination, attributes }: MessagingOperation,
  messages: readonly TracedMessage[],
  parent: Context,
): Span | undefined {
  const api = loadedTracing();
  try {
    const links = name === 'emit' ? [] : linksTo(messages);
    const to = destination?.slice(0, textMax);
    return api?.trace.getTracer('postcommit').startSpan(
      to === undefined ? name : `${name} ${to}`,
      {
        kind: kinds[name],
        links,
        attributes: {
          'messaging.system': system,
          'messaging.operation.name': name,
          'messaging.operation.type': types[name],
          ...(to !== undefined && { 'messaging.destination.name': to }),
          ...(messages.length === 1
            ? { 'messaging.message.id': messages[0]?.id ?? '' }
            : { 'messaging.batch.message_count': messages.length }),
          ...attributes,
        },
      },
      parent,
    );
  } catch {
    return undefined;
  }
}

function linksTo(messages: readonly TracedMessage[]): Link[] {
  const api = loadedTracing();
  const links: Link[] = [];
  for (const { headers } of messages.slice(0, linksMax)) {
    const remote = api && extractContext(api, headers, api.ROOT_CONTEXT);
    const context = remote && api.trace.getSpanContext(remote);
    if (context) links.push({ context });
  }
  return links;
}
