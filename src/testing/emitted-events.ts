import { codedDatabaseError } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import { defaultSchema, perSchema } from '../database/identifier.ts';
import { bufferOf } from '../emit/emit-buffer.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { requireDatabase } from '../emit/outbox-options.ts';
import { isTaken, waitForTurn } from '../emit/send-turns.ts';
import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import { readJson, toDate } from '../outbox/read-json.ts';
import { unknownOption } from '../suggest.ts';

/** Which events to look at. */
export interface EmittedWhere<Tx> {
  /** The database, as for `createOutbox`: `fromPg(pool)`, or another adapter. */
  db: OutboxDatabase<Tx, unknown>;
  /**
   * An open transaction: only the events that it has emitted itself. Events that `outbox.transaction` keeps until COMMIT are written
   * first. Default: all committed events of the schema.
   */
  tx?: Tx;
  /** The schema that holds the outbox. Default `postcommit`. */
  schema?: string;
  /** Only events behind this one: the `seq` of an event. Default: from the first on. */
  after?: string;
}

/** An event as the log has it. */
export interface EmittedEvent {
  readonly id: string;
  readonly seq: string;
  readonly type: string;
  readonly aggregate: readonly [type: string, id: string];
  readonly payload: unknown;
  readonly headers: Readonly<Record<string, string>>;
  readonly schemaVersion: number;
  /** `null`: it is not ordered. `undefined`: by its aggregate. */
  readonly key: string | null | undefined;
  readonly queue: string;
  readonly attemptsMax: number | undefined;
  /** `undefined`: it is due immediately. */
  readonly availableAt: Date | undefined;
  readonly createdAt: Date;
}

type Row = Pick<
  EmittedEvent,
  'id' | 'seq' | 'type' | 'aggregate' | 'payload' | 'headers' | 'schemaVersion' | 'queue'
> & {
  orderingKey: string | null;
  attemptsMax: number | null;
  availableAt: string | null;
  createdAt: string;
};

const selectSql = (s: string) => `
select json_build_object(
  'id', e.id, 'seq', e.seq::text, 'type', e.event_type, 'aggregate', json_build_array(e.aggregate_type, e.aggregate_id),
  'payload', e.payload, 'headers', e.headers, 'schemaVersion', e.schema_version, 'orderingKey', e.ordering_key,
  'queue', coalesce(e.queue, 'default'), 'attemptsMax', e.attempts_max, 'availableAt', e.available_at,
  'createdAt', e.created_at)::text as json
  from ${s}.outbox_events e`;

const committedSql = perSchema((s) => `${selectSql(s)} where e.seq > $1::text::bigint order by e.seq`);

// A row that is visible and whose writer is in progress was written by this transaction, or by a subtransaction of it: those have
// ids of their own, above the transaction's. xmin has the lower 32 bits of an id, so it is completed from the transaction's.
const ownSql = perSchema(
  (s) => `${selectSql(s)}
 cross join (select pg_current_xact_id_if_assigned()::text::bigint as id) t
 cross join lateral (select (e.xmin::text::bigint - t.id) & 4294967295 as ahead) x
 where e.seq > $1::text::bigint
   and case when x.ahead < 2147483648 then pg_xact_status((t.id + x.ahead)::text::xid8) = 'in progress' else false end
 order by e.seq`,
);

const whereNames = ['db', 'tx', 'schema', 'after'];

/**
 * Reads events from the log, in order of `seq`: those that an open transaction has emitted so far, or all that are committed.
 *
 * @example
 * import { emittedEvents } from 'postcommit/testing';
 *
 * const before = (await emittedEvents({ db: fromPg(pool) })).at(-1)?.seq ?? '0';
 * // ... what is tested ...
 * const events = await emittedEvents({ db: fromPg(pool), after: before });
 * console.log(events.map(({ type }) => type));
 */
export async function emittedEvents<Tx>(where: EmittedWhere<Tx>): Promise<EmittedEvent[]> {
  checkWhere(where);
  const { db, tx, schema = defaultSchema, after = '0' } = where;
  try {
    if (tx === undefined) return await read(db.side, committedSql(schema), after);
    let events: EmittedEvent[] = [];
    const readOwn = async () => {
      if (isTaken(tx)) await waitForTurn(tx);
      events = await read(db.inTransaction(tx), ownSql(schema), after);
    };
    const buffer = bufferOf(tx);
    await (buffer ? buffer.writeNow(readOwn) : readOwn());
    return events;
  } catch (error) {
    throw codedDatabaseError(error);
  }
}

function checkWhere<Tx>(where: EmittedWhere<Tx>): void {
  requireDatabase(where?.db, 'emittedEvents');
  const unknown = unknownOption(where, whereNames);
  if (unknown !== undefined) throw refuse(`emittedEvents(): ${unknown}`);
  // A tx that a test forgot to assign must not mean all committed events.
  if ('tx' in where && where.tx === undefined) throw refuse('tx is undefined. Leave it out to read committed events.');
  if (where.after !== undefined && !/^\d{1,19}$/.test(where.after)) {
    throw refuse(`after must be the seq of an event, as text. Got ${shown(where.after)}.`);
  }
}

async function read(db: Executor, sql: string, after: string): Promise<EmittedEvent[]> {
  const rows = await readJson<Row>(db, sql, [after]);
  return rows.map(({ orderingKey, attemptsMax, availableAt, createdAt, ...row }) => ({
    ...row,
    key: orderingKey === null ? undefined : orderingKey || null,
    attemptsMax: attemptsMax ?? undefined,
    availableAt: availableAt === null ? undefined : toDate(availableAt),
    createdAt: toDate(createdAt),
  }));
}

function refuse(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
