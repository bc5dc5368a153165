import { defaultSchema, quoteIdentifier } from '../database/identifier.ts';
import { isStorable } from '../database/storable-text.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { requireDatabase } from '../emit/outbox-options.ts';
import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { ProcessedEvent } from '../outbox/consuming/record-processed.ts';
import { checkKeepMs, keepMsDefault } from '../retention.ts';
import { unknownOption } from '../suggest.ts';
import { isUuid } from '../uuid.ts';

export interface InboxOptions<Tx> {
  /** The database in which the consumer works, through the client you use: `fromPg(pool)`, or another adapter. */
  db: OutboxDatabase<Tx>;
  /** The schema that holds `processed_events`. Default `postcommit`. */
  schema?: string;
  /** What `createMetrics()` of `postcommit/metrics` returns: counts events and duplicates by consumer. Default: none. */
  metrics?: Metrics;
}

export interface OutsideOptions {
  /**
   * How long the work may take, in milliseconds, from 1 to 3,600,000. Then its signal is aborted, and a redelivery repeats it. It
   * holds a database connection and an open transaction for that time, which keeps VACUUM from removing rows that were deleted
   * meanwhile. Default 30,000.
   */
  timeoutMs?: number;
}

export interface InboxPruneOptions {
  /**
   * Deletes records of events that were processed longer ago, in milliseconds. Take more than events can be replayed
   * (`maintenance.keepEventsMs` of their outbox) and the broker can redeliver. Default 2,592,000,000 (30 days).
   */
  olderThanMs?: number;
  /** Stops it after the statement in progress. What is deleted stays deleted. */
  signal?: AbortSignal;
}

/** With the event id it must fit into an index entry, and it is in every row. */
const consumerBytesMax = 200;
const timeoutMsDefault = 30_000;
const timeoutMsMax = 3_600_000;

export function resolveInboxOptions<Tx>(options: InboxOptions<Tx>) {
  requireDatabase(options?.db, 'createInbox');
  refuseUnknown(options, ['db', 'schema', 'metrics'], 'createInbox');
  const schema = options.schema ?? defaultSchema;
  quoteIdentifier(schema);
  return { db: options.db, schema, metrics: options.metrics };
}

export function checkKey(event: ProcessedEvent): ProcessedEvent {
  const consumer = checkConsumer(event?.consumer);
  if (isUuid(event.eventId)) return { consumer, eventId: event.eventId };
  const detail = `Got ${shown(event.eventId)}, and nothing was written. Pass the eventId of the envelope; derive a UUID from the ids of other systems.`;
  throw new PostcommitError('POSTCOMMIT_E_BAD_ID', detail);
}

export function checkConsumer(name: unknown): string {
  const isName = typeof name === 'string' && name !== '' && Buffer.byteLength(name) <= consumerBytesMax;
  if (isName && isStorable(name)) return name;
  throw new PostcommitError('POSTCOMMIT_E_BAD_CONSUMER', `Got ${shown(name)}.`);
}

export function requireWork(work: unknown, method: string): void {
  if (typeof work === 'function') return;
  throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `inbox.${method}() takes a function that does the work.`);
}

export function checkTimeout(options: OutsideOptions): number {
  refuseUnknown(options, ['timeoutMs'], 'onceOutside');
  const { timeoutMs = timeoutMsDefault } = options;
  if (Number.isInteger(timeoutMs) && timeoutMs >= 1 && timeoutMs <= timeoutMsMax) return timeoutMs;
  throw new PostcommitError(
    'POSTCOMMIT_E_BAD_OPTION',
    `timeoutMs must be a whole number from 1 to ${timeoutMsMax}. Got ${shown(timeoutMs)}.`,
  );
}

export function checkPrune(options: InboxPruneOptions): { olderThanMs: number; signal: AbortSignal | undefined } {
  refuseUnknown(options, ['olderThanMs', 'signal'], 'inbox.prune');
  return { olderThanMs: checkKeepMs('olderThanMs', options.olderThanMs ?? keepMsDefault), signal: options.signal };
}

function refuseUnknown(options: object, known: readonly string[], method: string): void {
  const unknown = unknownOption(options, known, `${method}()`);
  if (unknown !== undefined) throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', unknown);
}
