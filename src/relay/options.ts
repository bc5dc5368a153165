import { hostname } from 'node:os';
import { getHeapStatistics } from 'node:v8';
import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { requireCatalogue } from '../catalogue/catalogue.ts';
import type { UnknownVersions } from '../catalogue/upcast.ts';
import type { ConnectionOptions } from '../database/connection-options.ts';
import { resolveConnectionForWriting } from '../database/connection-options.ts';
import { defaultSchema, quoteIdentifier } from '../database/identifier.ts';
import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import type { FetchHandler, ListenOptions } from '../http/serve.ts';
import { resolveListen } from '../http/serve.ts';
import { createMetrics, type Metrics } from '../metrics/metrics.ts';
import { inlineBytesMax } from '../outbox/delivering/load-payload.ts';
import { didYouMean, unknownOption } from '../suggest.ts';
import type { Logger } from '../telemetry/logging.ts';
import { resolveLogger } from '../telemetry/logging.ts';
import type { Destinations } from './deliver/destinations/destination-options.ts';
import { resolveDestinations } from './deliver/destinations/destination-options.ts';
import { isPattern } from './deliver/handler-index.ts';
import { resolveHandlers } from './deliver/handler-options.ts';
import type { HandlersOf } from './deliver/handlers.ts';
import type { RouteFunction } from './deliver/router.ts';
import type { RetryPolicy } from './event/retry-policy.ts';
import { resolveRetry } from './event/retry-policy.ts';
import type { MaintenanceOptions } from './maintenance/maintenance-options.ts';
import { resolveMaintenance } from './maintenance/maintenance-options.ts';
import type { RelayQueues } from './queues.ts';
import { inFlightDefault, requireRoom, resolveQueues, slotsMax } from './queues.ts';
import type { Schedules } from './schedules/schedule-options.ts';
import { resolveSchedules } from './schedules/schedule-options.ts';

/**
 * Options of `createRelay`. The defaults suit a service with some hundred events a second and more.
 *
 * The relay opens four connections to the database, a fifth for the first payload over 16 KB, one more while it does
 * maintenance, one more while it emits the events of schedules, one more while it samples the metrics of the outbox, and one for
 * each call of a transactional handler.
 */
export interface RelayOptions<Catalogue extends EventCatalogue = EventCatalogue> extends ConnectionOptions {
  /** The schema that holds the outbox. Default `postcommit`. */
  schema?: string;
  /**
   * Named handlers by event type, or pattern of types (`order.*`, `*`), each a function or `{ handle, timeoutMs, retry, … }`. A
   * relay needs at least one handler or destination.
   */
  handlers?: HandlersOf<NoInfer<Catalogue>>;
  /**
   * The event types, with their schemas: what `defineEvents` returns. Handlers get each payload in the newest version, read by its
   * schema; destinations get it as it was stored. Handlers of other types are refused. Default: events as they were stored.
   */
  events?: Catalogue;
  /**
   * What handlers do with an event whose version is newer than that of `events`, because a newer emitter wrote it. `retry` (default):
   * the event waits, and its key with it, for a relay that knows the version; no attempt is counted. `deadLetter`: it becomes a dead
   * letter. `deliver`: handlers get it as it was stored, unchecked.
   */
  unknownVersions?: UnknownVersions;
  /** Brokers and endpoints by name, e.g. `{ events: kafka({ brokers }) }`. */
  destinations?: Destinations;
  /**
   * Where an event goes, e.g. `(event) => ({ to: 'events', topic: event.type })`. Default: to every destination, with
   * the event's type as topic.
   */
  route?: RouteFunction;
  /** Shown to operators. Default: host name and process id. */
  name?: string;
  /**
   * How long the relay counts as alive without a heartbeat. A crash is noticed within three seconds, a blocked event loop after
   * `blockedMaxMs`. A frozen process or host, and a crash behind a transaction pooler, are noticed after this time; a shorter lease
   * means a faster takeover of these and more heartbeats (three per lease). Default 30,000.
   */
  leaseMs?: number;
  /**
   * Keep the lease on a worker thread, so that a handler that blocks the event loop for longer than a lease does not lose its
   * events. In a bundle without the package's own files, and with `connection.stream`, there is no thread. A password
   * function is called on the event loop, so while that is blocked the heartbeat cannot reconnect. Default `true`.
   */
  heartbeatThread?: boolean;
  /**
   * A relay whose event loop was blocked for this long counts as lost: it gives up its lease, and other relays take over. Needs
   * `heartbeatThread`; without it a relay that is blocked for longer than a lease is taken over. Default 600,000.
   */
  blockedMaxMs?: number;
  /** A call of a handler that takes longer is aborted and counts as failed, unless it has a `timeoutMs`. Default 30,000. */
  deliverTimeoutMs?: number;
  /**
   * Events of the queue `default` that are in handlers at once, over all aggregates, if `queues` is not given. A batch counts as
   * one. All handlers of an event are called at once, so there can be more calls. Destinations have limits of their own.
   * Default 100.
   */
  inFlightMax?: number;
  /**
   * The queues that this relay works, and how many events of each may be in handlers at once, as for `inFlightMax`, e.g.
   * `{ default: 100, reports: 2 }`. It claims nothing from any other queue. At most 100 queues, from 1 to 10,000 each. The
   * limits `prefetchMax`, `prefetchBytesMax` and `inFlightBytesMax` are divided equally between them. Not together with
   * `inFlightMax`. Default: only `default`, with `inFlightMax`.
   */
  queues?: RelayQueues;
  /** Events per claim. Larger is faster and uses more memory. Default 1,000. */
  batchSizeMax?: number;
  /**
   * Events the relay buffers at once: waiting, in flight, and not yet settled. It buffers fewer, down to twice
   * `inFlightMax` and all batches of batch handlers, when a quarter of a second's work is less. Default 4,000.
   */
  prefetchMax?: number;
  /**
   * Bytes of large payloads that are loaded and in flight at once. A claim returns neither payloads over 16 KB,
   * together with the headers, nor headers over 16 KB: the relay loads each before its delivery and drops it when the
   * delivery ends. Half of the limit is reserved for payloads up to 1/32 of it, so that larger ones whose delivery hangs do
   * not delay them. A payload over half of the limit is loaded when no other one of that half is in flight. A handler
   * that parses its payload needs several times as much memory. Default 33,554,432 (32 MiB), or an eighth of the process's
   * heap limit if that is less.
   */
  inFlightBytesMax?: number;
  /**
   * Length of payloads and headers up to 16 KB per event that the relay buffers at once, in UTF-16 code units: a byte of
   * memory each, or two in a text with characters beyond Latin-1. Larger ones count against `inFlightBytesMax`. A claim takes
   * one event for every 16 KB that are free, so a low limit also makes claims smaller. Default 33,554,432, or an eighth of
   * the process's heap limit if that is less.
   */
  prefetchBytesMax?: number;
  /**
   * The largest payload that the relay loads, in bytes of JSON text as PostgreSQL writes it. An event with a larger one
   * becomes a dead letter at once: loading it could exhaust the memory of every relay that tries. Default 134,217,728
   * (128 MiB, twice the most that `payloadBytesMax` of an outbox can be), or a quarter of the process's heap limit if
   * that is less.
   */
  loadBytesMax?: number;
  /** When to try again after a failure, unless the handler has its own `retry`. Default: exponential with full jitter, from 1 s to 1 h, 80 attempts. */
  retry?: RetryPolicy;
  /**
   * What a dead letter does to its aggregate. `skip` (default): the following events are delivered. `block`: they wait
   * until the dead letter is retried or discarded.
   */
  poison?: 'skip' | 'block';
  /**
   * What happens to an event that has no handler and is routed to no destination. `retry` (default): it waits for one, and
   * each try counts as a failed attempt; right for rolling deployments. `fail`: it becomes a dead letter immediately.
   */
  noHandler?: 'retry' | 'fail';
  /**
   * The longest time between two claims while notifications arrive. Where none arrive, and with `listen: false`, an idle relay
   * claims every 250 ms at the latest, even if this is longer. Default 1,000.
   */
  pollIntervalMs?: number;
  /** Use LISTEN. Set to `false` behind a transaction pooler (PgBouncer), where it receives nothing. Default `true`. */
  listen?: boolean;
  /** How long `stop()` waits for deliveries in flight before it releases them. Default 10,000. */
  stopTimeoutMs?: number;
  /**
   * What one relay does for all: partitions, and how long events and the inbox are kept. `false`: this relay never does it.
   * Default: events and processed events are kept for 30 days, checked every minute.
   */
  maintenance?: MaintenanceOptions | false;
  /**
   * Events to emit at given times, by name. Of all relays that have the same schedules, one emits them, each tick once.
   * Default: none.
   */
  schedules?: Schedules;
  /**
   * Where to log; a pino logger fits. `false`: nowhere. Default: warnings and errors go to standard error, as one JSON object per
   * line.
   */
  logger?: Logger | false;
  /** What `createMetrics()` of `postcommit/metrics` returns. Default: none, or with `http` metrics of its own. */
  metrics?: Metrics;
  /**
   * Serve `/livez`, `/readyz` and `/metrics` while the relay runs, e.g. `{ port: 9464 }`. They carry no payloads and need no
   * authentication, and show the names of event types, queues and destinations. Probes and scrapers of other hosts need
   * `host: '0.0.0.0'`. Default: not served.
   */
  http?: RelayHttpOptions;
}

/** Where a relay serves its endpoints. `host` is `127.0.0.1` by default: only programs on this machine can connect. */
export interface RelayHttpOptions extends ListenOptions {
  /** Returns the responses to all other paths, e.g. `dashboard.fetch`. It gets the request and its connection. Default: 404. */
  fetch?: FetchHandler;
}

/** Complete by its type: an option that is added above and not here does not compile. */
export const relayOptionNames: Record<keyof RelayOptions, true> = {
  connectionString: true,
  connection: true,
  schema: true,
  handlers: true,
  events: true,
  unknownVersions: true,
  destinations: true,
  route: true,
  name: true,
  leaseMs: true,
  heartbeatThread: true,
  blockedMaxMs: true,
  deliverTimeoutMs: true,
  inFlightMax: true,
  queues: true,
  batchSizeMax: true,
  prefetchMax: true,
  inFlightBytesMax: true,
  prefetchBytesMax: true,
  loadBytesMax: true,
  retry: true,
  poison: true,
  noHandler: true,
  pollIntervalMs: true,
  listen: true,
  stopTimeoutMs: true,
  maintenance: true,
  schedules: true,
  logger: true,
  metrics: true,
  http: true,
};

export type ResolvedRelayOptions = ReturnType<typeof resolveOptions>;

/** Fills in the defaults and checks the options against each other, once. */
export function resolveOptions(given: RelayOptions) {
  if (typeof given !== 'object' || given === null) throw fail('createRelay() takes an object of options.');
  // Before any other check: a misspelt connectionString would be reported as a missing one.
  const unknown = unknownOption(given, Object.keys(relayOptionNames));
  if (unknown !== undefined) throw fail(unknown);
  const whole = (name: keyof RelayOptions, fallback: number, min: number, max: number): number => {
    const value = (given[name] as number | undefined) ?? fallback;
    if (!Number.isInteger(value) || value < min || value > max) {
      throw fail(`${name} must be a whole number from ${min} to ${max}. Got ${shown(value)}.`);
    }
    return value;
  };
  const oneOf = <T extends string>(name: keyof RelayOptions, fallback: T, allowed: readonly T[]): T => {
    const value = (given[name] as T | undefined) ?? fallback;
    if (!allowed.includes(value)) throw fail(`${name} must be one of ${allowed.join(', ')}. Got ${shown(value)}.`);
    return value;
  };
  requireCatalogue(given.events, 'createRelay');
  if (given.events !== undefined) requireListed(given.events, given.handlers ?? {});
  const schema = given.schema ?? defaultSchema;
  quoteIdentifier(schema);
  const servers = resolveConnectionForWriting(given);
  // If only one of the two is set, the default of the other follows it.
  const prefetchMax = whole('prefetchMax', 4_000, 2, 100_000);
  const batchSizeMax = whole('batchSizeMax', Math.min(1_000, prefetchMax), 2, 5_000);
  const deliverTimeoutMs = whole('deliverTimeoutMs', 30_000, 1, 86_400_000);
  const retry = resolveRetry(given.retry);
  const handlers = resolveHandlers(given.handlers ?? {}, { deliverTimeoutMs, retry });
  const handlerNames = new Set([
    ...handlers.all.map(({ name }) => name),
    ...Object.keys(given.handlers ?? {}).filter(isPattern),
  ]);
  const options = {
    connectionString: given.connectionString,
    connection: given.connection,
    schema,
    handlers,
    events: given.events,
    unknownVersions: oneOf('unknownVersions', 'retry', ['retry', 'deadLetter', 'deliver']),
    destinations: resolveDestinations(given.destinations ?? {}, handlerNames),
    route: checkRoute(given.route),
    name: checkName(given.name ?? `${hostname()}:${process.pid}`),
    leaseMs: whole('leaseMs', 30_000, 300, 3_600_000),
    heartbeatThread: checkFlag('heartbeatThread', given.heartbeatThread ?? true),
    blockedMaxMs: whole('blockedMaxMs', 600_000, 100, 86_400_000),
    deliverTimeoutMs,
    inFlightMax: whole('inFlightMax', inFlightDefault, 1, slotsMax),
    queues: resolveQueues(given.queues, given.inFlightMax),
    batchSizeMax,
    prefetchMax: given.prefetchMax ?? Math.max(prefetchMax, batchSizeMax),
    inFlightBytesMax: whole('inFlightBytesMax', ofHeap(1 / 8, 33_554_432), 4 * inlineBytesMax, bytesMaxMax),
    prefetchBytesMax: whole('prefetchBytesMax', ofHeap(1 / 8, 33_554_432), 2 * inlineBytesMax, bytesMaxMax),
    // The largest jsonb value has 256 MiB, and a text of 512 Mi characters does not fit a JavaScript string.
    loadBytesMax: whole('loadBytesMax', ofHeap(1 / 4, 134_217_728), inlineBytesMax, 268_435_456),
    retry,
    poison: oneOf('poison', 'skip', ['skip', 'block']),
    noHandler: oneOf('noHandler', 'retry', ['retry', 'fail']),
    pollIntervalMs: whole('pollIntervalMs', 1_000, 10, 3_600_000),
    listen: checkFlag('listen', given.listen ?? true),
    stopTimeoutMs: whole('stopTimeoutMs', 10_000, 0, 3_600_000),
    maintenance: resolveMaintenance(given.maintenance),
    schedules: resolveSchedules(given.schedules, given.events),
    logger: resolveRelayLogger(given.logger),
    metrics: checkMetrics(given.metrics) ?? (given.http === undefined ? undefined : createMetrics()),
    http: resolveHttp(given.http),
  };
  if (options.route !== undefined && options.destinations.length === 0) {
    throw fail('route needs destinations to choose from.');
  }
  if (options.prefetchMax < options.batchSizeMax) {
    throw fail(`prefetchMax (${options.prefetchMax}) must not be below batchSizeMax (${options.batchSizeMax}).`);
  }
  requireRoom(options.queues, options);
  return { ...options, servers };
}

/** A handler of a misspelt type would never be called. */
function requireListed(events: EventCatalogue, handlers: object): void {
  const types = Object.keys(events);
  for (const key of Object.keys(handlers)) {
    const isListed = isPattern(key) ? types.some((type) => type.startsWith(key.slice(0, -1))) : types.includes(key);
    if (!isListed) throw fail(`handlers['${key}'] has no event type in events.${didYouMean(key, types)}`);
  }
}

/** The names that the relay writes into the database. */
export function storedNames({ name, handlers, destinations }: ResolvedRelayOptions): Set<string> {
  return new Set([
    name,
    ...handlers.all.map((handler) => handler.name),
    ...destinations.map((destination) => destination.name),
  ]);
}

const bytesMaxMax = 1_073_741_824;

/** This fraction of the heap limit (--max-old-space-size), at most `max`. */
function ofHeap(fraction: number, max: number): number {
  return Math.min(max, Math.max(4 * inlineBytesMax, Math.floor(getHeapStatistics().heap_size_limit * fraction)));
}

function checkName(name: unknown): string {
  if (typeof name === 'string' && name !== '' && name.length <= 200 && name.isWellFormed() && !name.includes('\0')) {
    return name;
  }
  throw fail('name must be a text of 1 to 200 characters.');
}

function checkRoute(route: unknown): RouteFunction | undefined {
  if (route === undefined || typeof route === 'function') return route as RouteFunction | undefined;
  throw fail("route must be a function, e.g. (event) => ({ to: 'events', topic: event.type }).");
}

function checkFlag(name: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value;
  throw fail(`${name} must be true or false. Got ${shown(value)}.`);
}

export function resolveRelayLogger(given: Logger | false | undefined): Logger {
  return resolveLogger(given, fail);
}

function checkMetrics(metrics: Metrics | undefined): Metrics | undefined {
  // Not instanceof: the application may have two copies of the package.
  if (metrics === undefined || typeof metrics?.counter === 'function') return metrics;
  throw fail('metrics must be what createMetrics() of postcommit/metrics returns.');
}

function resolveHttp(given: RelayHttpOptions | undefined) {
  if (given === undefined) return undefined;
  if (typeof given !== 'object' || given === null) throw fail('http must be an object, e.g. { port: 9464 }.');
  const unknown = unknownOption(given, ['port', 'host', 'fetch']);
  if (unknown !== undefined) throw fail(`http: ${unknown}`);
  if (given.fetch !== undefined && typeof given.fetch !== 'function') throw fail('http.fetch must be a function.');
  return { ...resolveListen(given, 'http.'), fetch: given.fetch };
}

/** Refuses a relay that can deliver nothing. */
export function requireTargets({ handlers, destinations }: ResolvedRelayOptions): void {
  if (handlers.all.length > 0 || destinations.length > 0) return;
  throw fail(
    "handlers and destinations are empty, so every event would fail until its attempts are used up. Give at least one, e.g. handlers: { 'order.created': { 'send-receipt': async (event) => {} } }.",
  );
}

function fail(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
