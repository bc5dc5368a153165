import { isUnreadable } from '../../database/database-error.ts';
import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import type { DeadReason } from '../delivering/fail.ts';
import { covers } from '../maintaining/partition.ts';
import { optional, readJson, toDate } from '../read-json.ts';
import type { EventStatus } from './list.ts';
import type { HandlerProgress, ProgressRow } from './list-progress.ts';
import { progressOf, toProgress } from './list-progress.ts';

const failuresMax = 1_000;
const deliveriesMax = 1_000;
const editsMax = 20;
const replacedCharactersMax = 65_536;
/** Length of the payload text that is returned: the limit of `payloadJson`. */
export const payloadCharactersMax = 16_777_216;

/** Relay 0 is an operator, who ran `forget` or `cancel`. */
const relayName = (row: string) =>
  `coalesce(r.name, case when ${row}.relay = 0 then 'operator' else ${row}.relay::text end)`;

// One statement, so that all parts are of one snapshot. The status comes from the view, which defines it. LIMIT 1 keeps the view
// from being merged into the plan: joined, it was computed for every event of the log, 2.5 s beside 1,000,000 of them.
//
// The text of a payload can be 10,000 times as long as its stored form: jsonb stores 1e131071 in 12 bytes. So the length is
// known only after the conversion, and is checked before the text is sent. A value stored in more than eight times the limit
// is not converted at all, for the reason in load-payload.ts. OFFSET 0 keeps the text from being computed twice.
const findSql = (column: 'id' | 'seq', type: 'uuid' | 'bigint') =>
  perSchema(
    (s) => `
select json_build_object(
  'id', e.id, 'seq', e.seq::text, 'type', e.event_type, 'aggregateType', e.aggregate_type,
  'aggregateId', e.aggregate_id, 'orderingKey', e.ordering_key, 'schemaVersion', e.schema_version,
  'payloadJson', coalesce(left(p.text, ${payloadCharactersMax}), ''), 'payloadBytes', octet_length(p.text),
  'payloadCut', coalesce(length(p.text) > ${payloadCharactersMax}, true), 'headersJson', e.headers::text, 'status', v.status, 'unqueued', v.status = 'PENDING' and q.seq is null
    and not exists (select from ${s}.outbox_shelf h where h.seq = e.seq), 'createdAt', e.created_at,
  'availableAt', v.next_retry_at, 'attempts', v.retry_count + (v.status = 'SENT')::integer,
  'done', coalesce(q.done, (select h.done from ${s}.outbox_shelf h where h.seq = e.seq limit 1), d.done, '{}'),
  'owed', coalesce(q.owed, d.owed, '{}'), 'queue', coalesce(e.queue, 'default'),
  'waitingFor', array(select h.destination from ${s}.outbox_shelf h where h.seq = e.seq order by h.destination),
  'waitingSince', (select min(h.shelved_at) from ${s}.outbox_shelf h where h.seq = e.seq),
  'failures', array(
    select json_build_object('attempt', f.attempt, 'at', f.failed_at, 'target', f.target, 'code', f.code,
                             'error', f.error, 'relay', ${relayName('f')})
      from (select * from ${s}.outbox_failures where seq = e.seq
             order by failed_at desc, attempt desc, target desc limit ${failuresMax}) f
      left join ${s}.outbox_relays r on r.token = f.relay
     order by f.failed_at, f.attempt, f.target),
  'deliveries', array(
    select json_build_object('at', x.delivered_at, 'attempts', x.attempts, 'targets', x.targets,
                             'relay', ${relayName('x')})
      from (select x.* from ${s}.outbox_deliveries x where ${covers('x', 'e.seq')}
             order by x.delivered_at desc limit ${deliveriesMax}) x
      left join ${s}.outbox_relays r on r.token = x.relay
     order by x.delivered_at),
  'deadLetter', case when d.seq is not null then json_build_object(
    'at', d.dead_at, 'reason', d.reason, 'attempts', d.attempts, 'error', d.error, 'blocking', d.blocking,
    'discardedAt', d.discarded_at, 'cancelled', case when d.reason = 'cancelled' then
      json_build_object('by', coalesce(d.cancelled_by, 'operator'), 'reason', d.cancel_note) end) end,
  'holder', (
    select json_build_object('token', r.token::text, 'name', r.name, 'host', r.host, 'pid', r.pid)
      from ${s}.outbox_relays r where r.token = q.claimed_by and r.ended_at is null),
  'progress', array(
    select ${progressOf('p')} from ${s}.outbox_progress p
      join ${s}.outbox_relays r on r.token = p.relay and r.ended_at is null
     where p.seq = e.seq and p.relay = q.claimed_by order by p.handler),
  'edits', array(
    select json_build_object('at', x.edited_at, 'by', x.edited_by, 'databaseRole', x.database_role, 'reason', x.reason, 'replacedJson',
             left(coalesce((select y.payload from ${s}.outbox_edits y where y.seq = x.seq and y.number < x.number
                             order by y.number desc limit 1), e.payload)::text, ${replacedCharactersMax}))
      from (select * from ${s}.outbox_edits where seq = e.seq order by number desc limit ${editsMax}) x
     where $2::text::boolean order by x.number),
  'waitingBehind', (
    select json_build_object('id', b.id, 'seq', b.seq::text)
      from (select p.seq from ${s}.outbox_queue p where p.key = q.key and p.seq < q.seq order by p.seq limit 1) p
      join ${s}.outbox_events b on b.seq = p.seq),
  'unknownVersion', case when q.seq is not null then (
    select json_build_object('newest', max((u.known ->> 'newest')::integer), 'relays', array_agg(r.name order by r.name))
      from ${s}.outbox_relays r
      cross join lateral jsonb_array_elements(
        case when jsonb_typeof(r.stats -> 'unknownVersions') = 'array' then r.stats -> 'unknownVersions' else '[]' end
      ) as u(known)
     where r.ended_at is null and u.known ->> 'type' = e.event_type
       and u.known ->> 'version' = e.schema_version::text having count(*) > 0) end,
  'sameId', array(select o.seq::text from ${s}.outbox_events o where o.id = e.id and o.seq <> e.seq order by o.seq)
)::text as json
  from (select * from ${s}.outbox_events where ${column} = $1::text::${type} order by seq limit 1) e
  left join lateral (
    select o.payload::text as text
      from (select coalesce((select x.payload from ${s}.outbox_edits x where x.seq = e.seq order by x.number desc limit 1),
                            e.payload) as payload offset 0) o
     where $2::text::boolean and pg_column_size(o.payload) / 8 <= ${payloadCharactersMax} offset 0
  ) p on true
  cross join lateral (
    select w.status, w.next_retry_at, w.retry_count from ${s}.outbox_status w where w.seq = e.seq limit 1
  ) v
  left join ${s}.outbox_queue q on q.seq = e.seq
  left join ${s}.outbox_dead_letters d on d.seq = e.seq`,
  );
const findByIdSql = findSql('id', 'uuid');
const findBySeqSql = findSql('seq', 'bigint');

/** Everything that is recorded about one event. */
export interface EventDetails {
  id: string;
  /** Position in the log, as text: it may exceed a number. */
  seq: string;
  type: string;
  aggregate: { type: string; id: string };
  /** Its ordering key: its aggregate (`order:42`) or a key of its own; `null` if it is not ordered. */
  key: string | null;
  schemaVersion: number;
  /** The queue that delivers it. */
  queue: string;
  /** The payload as a handler gets it, so the last edit if there is one: parsed, so a number beyond 2^53 loses digits. `undefined` if `payloadCut`. */
  payload: unknown;
  /** The payload as PostgreSQL writes it: its first 16,777,216 characters, or nothing if `payloadBytes` is `null`. */
  payloadJson: string;
  /** Payloads that operators have written with `editAndRetry`, oldest first; at most the last 20. */
  edits: PayloadEdit[];
  /** Whether `payloadJson` is truncated. */
  payloadCut: boolean;
  /** Bytes of the whole text; `null` if the payload is stored in more than 128 MiB or its text has more than 1 GB. */
  payloadBytes: number | null;
  /** Text, unless plain SQL inserted something else. */
  headers: Record<string, unknown>;
  /** The headers as PostgreSQL writes them. */
  headersJson: string;
  status: EventStatus;
  createdAt: Date;
  /** Not delivered before this time: delayed, in backoff, or behind such an event of its key. */
  availableAt?: Date;
  /** Attempts since it was last queued: failed ones, and the successful one of a delivered event. */
  attempts: number;
  /** Every failed attempt, oldest first; an entry for each target that failed. At most the last 1,000. */
  failures: FailedAttempt[];
  /** Every delivery, oldest first: more than one after a replay. At most the last 1,000. */
  deliveries: Delivery[];
  /** Targets that already have it, while others do not. */
  done: string[];
  /**
   * Targets that it must still reach, as a relay has decided: destinations by name, handlers as `type:name`. Only relays that
   * have one of them claim it. Empty before its first attempt, and on the shelf, where `waitingFor` has them.
   */
  owed: string[];
  /** Present if it failed for good and was not retried since. */
  deadLetter?: DeadLetterFacts;
  /** The relay that has claimed it. */
  holder?: { token: string; name: string; host: string; pid: number };
  /** What its handlers in flight reported last, by name. Empty if none reports. */
  progress: HandlerProgress[];
  /** Destinations that are down or paused and do not have it yet, by name; the others in its route have it. */
  waitingFor: string[];
  /** When it was shelved for these. */
  waitingSince?: Date;
  /** The event of its key that must be delivered first. */
  waitingBehind?: { id: string; seq: string };
  /**
   * Live relays that have left it to another one, because their catalogue has only older versions of its type, and the newest that one
   * of them has. No attempt is counted.
   */
  unknownVersion?: { newest: number; relays: string[] };
  /** Seqs of other events with the same id, possible in a partitioned log. Lowest first. */
  sameId: string[];
  /** True if it was never queued nor delivered: no relay delivers it until `requeueUnqueued()`. */
  unqueued: boolean;
}

/** An edit of the payload by an operator. */
export interface PayloadEdit {
  at: Date;
  /** Who: as given, or the database role. */
  by: string;
  /** The database role that logged in. */
  databaseRole: string;
  reason: string | null;
  /** The payload before this edit, up to 65,536 characters. That of the first edit is as it was emitted. */
  replacedJson: string;
}

export interface FailedAttempt {
  attempt: number;
  at: Date;
  /** The target that failed; `null` if there was none. */
  target: string | null;
  code: string | null;
  error: string;
  /** The relay's name, or its token once its row in outbox_relays is pruned; `operator` for what `forget` and `cancel` did. */
  relay: string;
}

export interface Delivery {
  at: Date;
  /** How many attempts it took. */
  attempts: number;
  targets: string[];
  /** The relay's name, or its token once its row in outbox_relays is pruned; `operator` for what `forget` and `cancel` did. */
  relay: string;
}

/** Why and when an event failed for good. */
export interface DeadLetterFacts {
  at: Date;
  reason: DeadReason;
  attempts: number;
  /** The last error. */
  error: string;
  /** Whether the events of its key wait until it is retried or discarded. */
  blocking: boolean;
  /** When an operator discarded it. */
  discardedAt?: Date;
  /** Who cancelled it, and why, if they said so. Present if the reason is `cancelled`. */
  cancelled?: { by: string; reason: string | null };
}

type DeadLetterRow = Omit<DeadLetterFacts, 'at' | 'discardedAt' | 'cancelled'> & {
  at: string;
  discardedAt: string | null;
  cancelled: DeadLetterFacts['cancelled'] | null;
};

/** The same as read from the database: times are text, and absent values are null. */
interface EventDetailsRow
  extends Omit<
    EventDetails,
    | 'aggregate'
    | 'key'
    | 'payload'
    | 'headers'
    | 'createdAt'
    | 'availableAt'
    | 'failures'
    | 'deliveries'
    | 'deadLetter'
    | 'progress'
    | 'edits'
    | 'waitingSince'
  > {
  aggregateType: string;
  aggregateId: string;
  orderingKey: string | null;
  createdAt: string;
  availableAt: string | null;
  waitingSince: string | null;
  failures: (Omit<FailedAttempt, 'at'> & { at: string })[];
  deliveries: (Omit<Delivery, 'at'> & { at: string })[];
  progress: ProgressRow[];
  edits: (Omit<PayloadEdit, 'at'> & { at: string })[];
  deadLetter: DeadLetterRow | null;
}

/** Looks one event up, by its id (a UUID) or its seq. */
export async function find(
  db: Executor,
  schema: string,
  event: { id: string } | { seq: string },
): Promise<EventDetails | undefined> {
  const [text, value] = 'id' in event ? [findByIdSql(schema), event.id] : [findBySeqSql(schema), event.seq];
  const read = (withPayload: boolean) => readJson<EventDetailsRow>(db, text, [value, String(withPayload)]);
  const [row] = await read(true).catch((error) => {
    if (isUnreadable(error)) return read(false);
    throw error;
  });
  return row && toEventDetails(row);
}

function toEventDetails(row: EventDetailsRow): EventDetails {
  const { aggregateType, aggregateId, orderingKey, deadLetter, holder, waitingBehind } = row;
  return {
    id: row.id,
    seq: row.seq,
    type: row.type,
    aggregate: { type: aggregateType, id: aggregateId },
    key: orderingKey === null ? `${aggregateType}:${aggregateId}` : orderingKey || null,
    queue: row.queue,
    schemaVersion: row.schemaVersion,
    payload: row.payloadCut ? undefined : JSON.parse(row.payloadJson),
    payloadJson: row.payloadJson,
    payloadCut: row.payloadCut,
    edits: row.edits.map((edit) => ({ ...edit, at: toDate(edit.at) })),
    payloadBytes: row.payloadBytes,
    headers: JSON.parse(row.headersJson),
    headersJson: row.headersJson,
    status: row.status,
    createdAt: toDate(row.createdAt),
    ...optional('availableAt', row.availableAt, toDate),
    attempts: row.attempts,
    failures: row.failures.map((failure) => ({ ...failure, at: toDate(failure.at) })),
    deliveries: row.deliveries.map((delivery) => ({ ...delivery, at: toDate(delivery.at) })),
    done: row.done,
    owed: row.owed,
    progress: row.progress.map(toProgress),
    waitingFor: row.waitingFor,
    ...optional('waitingSince', row.waitingSince, toDate),
    ...optional('deadLetter', deadLetter, ({ discardedAt, cancelled, ...letter }) => ({
      ...letter,
      at: toDate(letter.at),
      ...optional('discardedAt', discardedAt, toDate),
      ...(cancelled && { cancelled }),
    })),
    ...(holder && { holder }),
    ...(waitingBehind && { waitingBehind }),
    ...(row.unknownVersion && { unknownVersion: row.unknownVersion }),
    sameId: row.sameId,
    unqueued: row.unqueued,
  };
}
