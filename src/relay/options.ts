import { hostname } from 'node:os';
import { defaultSchema, quoteIdentifier } from '../database/identifier.ts';
import { PostcommitError } from '../errors.ts';
import type { Logger } from '../telemetry/logging.ts';
import { silentLogger } from '../telemetry/logging.ts';
import type { RetryPolicy } from './backoff.ts';
import { resolveRetry } from './backoff.ts';
import type { Handlers } from './handlers.ts';
import { resolveHandlers } from './handlers.ts';

/** What `createRelay` takes. Every limit has a default that suits a service of some hundred events a second and more. */
export interface RelayOptions {
  /** The database that holds the outbox. The relay opens three connections of its own. */
  connectionString: string;
  /** The schema that holds the outbox. Default `postcommit`. */
  schema?: string;
  /** Named handlers by event type. */
  handlers: Handlers;
  /** Shown to operators. Default: host name and process id. */
  name?: string;
  /**
   * How long the relay counts as alive without a sign of life. A crash is noticed after this time; a shorter lease
   * means a faster takeover and more heartbeats (three per lease). Default 30,000.
   */
  leaseMs?: number;
  /** A delivery that takes longer is aborted and counts as failed. Default 30,000. */
  deliverTimeoutMs?: number;
  /** Deliveries under way at once, over all aggregates. Default 100. */
  inFlightMax?: number;
  /** Events per claim. Larger is faster and holds more in memory. Default 2,000. */
  batchSizeMax?: number;
  /**
   * Events the relay holds at once: waiting, under way, and not yet written down. It holds fewer, down to twice
   * `inFlightMax`, when a quarter of a second's work is less. Default 4,000.
   */
  prefetchMax?: number;
  /** When to try again after a failure. Default: exponential with full jitter, from 1 s to 1 h, 80 attempts. */
  retry?: RetryPolicy;
  /**
   * What a dead letter does to its aggregate. `skip` (default): the following events are delivered. `block`: they wait
   * until the dead letter is retried or discarded.
   */
  poison?: 'skip' | 'block';
  /**
   * What happens to an event whose type has no handler. `retry` (default): it waits for one, with the usual attempts;
   * right for rolling deployments. `fail`: it becomes a dead letter at once.
   */
  noHandler?: 'retry' | 'fail';
  /** The longest pause between two looks at the queue when nothing rings. Default 1,000. */
  pollIntervalMs?: number;
  /** Use LISTEN. Set to `false` behind a transaction pooler (PgBouncer), where it hears nothing. Default `true`. */
  listen?: boolean;
  /** How long `stop()` waits for deliveries under way before it gives them back. Default 10,000. */
  stopTimeoutMs?: number;
  /** Where to log. A pino logger fits. Default: nowhere. */
  logger?: Logger;
}

export type ResolvedRelayOptions = ReturnType<typeof resolveOptions>;

/** Fills in the defaults and checks the options against each other, once. */
export function resolveOptions(given: RelayOptions) {
  const fail = (detail: string) => new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
  if (typeof given?.connectionString !== 'string' || given.connectionString === '') {
    throw fail('connectionString must be a PostgreSQL URL, e.g. postgres://user:password@host:5432/database.');
  }
  const whole = (name: keyof RelayOptions, fallback: number, min: number, max: number): number => {
    const value = (given[name] as number | undefined) ?? fallback;
    if (!Number.isInteger(value) || value < min || value > max) {
      throw fail(`${name} must be a whole number from ${min} to ${max}. Got ${String(value)}.`);
    }
    return value;
  };
  const oneOf = <T extends string>(name: keyof RelayOptions, fallback: T, allowed: readonly T[]): T => {
    const value = (given[name] as T | undefined) ?? fallback;
    if (!allowed.includes(value)) throw fail(`${name} must be one of ${allowed.join(', ')}. Got ${String(value)}.`);
    return value;
  };
  const schema = given.schema ?? defaultSchema;
  quoteIdentifier(schema);
  const options = {
    connectionString: given.connectionString,
    schema,
    handlers: resolveHandlers(given.handlers ?? {}),
    name: given.name ?? `${hostname()}:${process.pid}`,
    leaseMs: whole('leaseMs', 30_000, 300, 3_600_000),
    deliverTimeoutMs: whole('deliverTimeoutMs', 30_000, 1, 86_400_000),
    inFlightMax: whole('inFlightMax', 100, 1, 10_000),
    batchSizeMax: whole('batchSizeMax', 2_000, 2, 5_000),
    prefetchMax: whole('prefetchMax', Math.max(4_000, given.batchSizeMax ?? 0), 2, 100_000),
    retry: resolveRetry(given.retry),
    poison: oneOf('poison', 'skip', ['skip', 'block']),
    noHandler: oneOf('noHandler', 'retry', ['retry', 'fail']),
    pollIntervalMs: whole('pollIntervalMs', 1_000, 10, 3_600_000),
    listen: given.listen ?? true,
    stopTimeoutMs: whole('stopTimeoutMs', 10_000, 0, 3_600_000),
    logger: given.logger ?? silentLogger,
  };
  if (options.prefetchMax < options.batchSizeMax) {
    throw fail(`prefetchMax (${options.prefetchMax}) must not be below batchSizeMax (${options.batchSizeMax}).`);
  }
  return options;
}
