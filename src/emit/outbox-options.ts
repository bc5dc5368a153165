import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { requireCatalogue } from '../catalogue/catalogue.ts';
import { defaultSchema, quoteIdentifier } from '../database/identifier.ts';
import { PostcommitError } from '../errors.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { unknownOption } from '../suggest.ts';
import type { QueueRule } from './event.ts';
import type { OutboxDatabase } from './outbox-database.ts';

export interface OutboxOptions<Tx, BatchStatement = never, Catalogue extends EventCatalogue = EventCatalogue> {
  /** The database, through the client you use: `fromPg(pool)`, or an adapter of yours (see {@link OutboxDatabase}). */
  db: OutboxDatabase<Tx, BatchStatement>;
  /** The schema that holds the outbox. Default `postcommit`. */
  schema?: string;
  /** The event types that may be emitted, with their schemas: what `defineEvents` returns. Any other event is refused. Default: every type. */
  events?: Catalogue;
  /** The largest payload, as bytes of JSON. Default 1,048,576 (1 MiB). */
  payloadBytesMax?: number;
  /**
   * Chooses the queue of each event for which neither `emit` nor the catalogue does, e.g.
   * `(event) => event.type.startsWith('report.') ? 'reports' : undefined`. Default: the queue `default`.
   */
  queueOf?: QueueRule;
  /**
   * Make concurrent writers of one aggregate wait for each other, so that events are in commit order. Turn it off only if
   * every writer locks its aggregate's row first. Default `true`.
   */
  serialise?: boolean;
  /**
   * Notify relays of other processes after a commit (NOTIFY, outside of your transaction). A process that exits right after
   * its last emit may not get to send it: a relay then finds the event by polling, within a second. Default `true`.
   */
  notify?: boolean;
  /** What `createMetrics()` of `postcommit/metrics` returns: counts the events that are emitted here. Default: none. */
  metrics?: Metrics;
}

const optionNames: readonly string[] = [
  'db',
  'schema',
  'events',
  'payloadBytesMax',
  'queueOf',
  'serialise',
  'notify',
  'metrics',
];

/** Fills in the defaults and checks the options, once. */
export function resolveOutboxOptions<Tx, BatchStatement>(options: OutboxOptions<Tx, BatchStatement>) {
  requireDatabase(options?.db, 'createOutbox');
  const unknown = unknownOption(options, optionNames, 'createOutbox()');
  if (unknown !== undefined) throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', unknown);
  const payloadBytesMax = options.payloadBytesMax ?? 1_048_576;
  // jsonb itself ends at 256 MiB; long before that an event is a file.
  if (!Number.isInteger(payloadBytesMax) || payloadBytesMax < 1 || payloadBytesMax > 67_108_864) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', 'payloadBytesMax must be from 1 to 67,108,864 bytes.');
  }
  if (options.queueOf !== undefined && typeof options.queueOf !== 'function') {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_OPTION',
      'queueOf must be a function that returns the name of a queue.',
    );
  }
  requireCatalogue(options.events, 'createOutbox');
  const schema = options.schema ?? defaultSchema;
  quoteIdentifier(schema);
  return {
    db: options.db,
    schema,
    events: options.events,
    payloadBytesMax,
    queueOf: options.queueOf,
    serialise: options.serialise ?? true,
    notify: options.notify ?? true,
    metrics: options.metrics,
  };
}

export function requireDatabase(db: Partial<OutboxDatabase<unknown, unknown>> | undefined, caller: string): void {
  const methods = [db?.inTransaction, db?.transaction, db?.side?.query];
  if (methods.every((method) => typeof method === 'function')) return;
  if (typeof (db as { connect?: unknown } | undefined)?.connect === 'function') {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_OPTION',
      `${caller}() got a pool as db. Pass it as { db: fromPg(pool) }.`,
    );
  }
  throw new PostcommitError(
    'POSTCOMMIT_E_BAD_OPTION',
    `${caller}() needs db, e.g. { db: fromPg(pool) }: an object with side, inTransaction and transaction.`,
  );
}
