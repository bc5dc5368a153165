import type { ArrayQuery } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import type { Settlement } from './settle.ts';
import { settleCall, settleValues } from './settle.ts';

// The token alone does not fence a repetition: when the answer to this statement is lost, the relay may have claimed the
// event again before it repeats it, and the attempt would count twice. So an event must also be as it was claimed.
const failText = (s: string) => `
with input as materialized (
  select f.* from jsonb_to_recordset($2::text::jsonb) as f(
    seq bigint, attempts integer, fate text, delay_ms double precision, done jsonb, reason text, errors jsonb,
    waits_for jsonb, untried boolean, owed jsonb)
), owned as materialized (
  select q.seq, q.attempts from ${s}.outbox_queue q
   where q.seq = any (array(select seq from input)) and q.claimed_by = $1::bigint
   order by q.seq for update
), mine as materialized (
  select i.*, case when i.done is null then null else array(select jsonb_array_elements_text(i.done)) end as done_targets,
         nullif(array(select jsonb_array_elements_text(i.owed)), '{}') as owed_targets
    from input i join owned o on o.seq = i.seq and o.attempts = i.attempts
), kept as (
  update ${s}.outbox_queue q
     set claimed_by = null,
         attempts = q.attempts + (m.fate in ('retry', 'hold'))::integer,
         blocking = m.fate = 'hold',
         -- A failed attempt came out of its delivery alive: this event did not end the earlier relays. One that is given
         -- back may have been in the middle of a trial, which then does not count.
         -- One that blocks its key is not claimed, and starts anew when it is retried.
         rescues = case when m.fate = 'hold' or m.fate = 'retry' and m.untried is not true then 0
                        when m.fate = 'release' then least(q.rescues, 4) else q.rescues end,
         done = coalesce(m.done_targets, q.done),
         owed = case when m.owed is null then q.owed else m.owed_targets end,
         available_at = case
           when m.fate = 'hold' then 'infinity'
           when m.delay_ms is not null then now() + m.delay_ms * interval '1 millisecond'
         end
    from mine m where q.seq = m.seq and m.fate in ('retry', 'hold', 'release')
  returning q.seq, q.key, q.attempts, q.done, q.owed, q.replay_id
), buried as (
  delete from ${s}.outbox_queue q using mine m where q.seq = m.seq and m.fate = 'bury'
  returning q.seq, q.key, q.attempts + 1 as attempts, coalesce(m.done_targets, q.done) as done,
            case when m.owed is null then q.owed else m.owed_targets end as owed, q.replay_id
), shelved as (
  delete from ${s}.outbox_queue q using mine m where q.seq = m.seq and m.fate = 'shelve'
  returning q.seq, q.key, q.attempts, least(q.rescues, 4) as rescues, coalesce(m.done_targets, q.done) as done,
            q.replay_id, m.waits_for
), shelf as (
  insert into ${s}.outbox_shelf (destination, seq, key, attempts, rescues, done, replay_id)
  select w.destination, x.seq, x.key, x.attempts, x.rescues, x.done, x.replay_id
    from shelved x cross join lateral jsonb_array_elements_text(x.waits_for) as w(destination)
  on conflict (destination, seq) do nothing
), known as (
  -- The destination may have been forgotten since this relay claimed the event: no relay would find its shelf.
  insert into ${s}.outbox_destinations (destination)
  select distinct w.destination from shelved x cross join lateral jsonb_array_elements_text(x.waits_for) as w(destination)
   where not exists (select from ${s}.outbox_destinations c where c.destination = w.destination)
  on conflict (destination) do nothing
), letters as (
  insert into ${s}.outbox_dead_letters (seq, reason, attempts, done, owed, replay_id, key, blocking, error)
  select m.seq, m.reason, x.attempts, x.done, x.owed, x.replay_id, x.key, m.fate = 'hold', m.errors -> -1 ->> 'error'
    from mine m join (select * from kept union all select * from buried) x on x.seq = m.seq
   where m.fate in ('bury', 'hold')
  on conflict (seq) do update set dead_at = now(), reason = excluded.reason, attempts = excluded.attempts,
    done = excluded.done, owed = excluded.owed, replay_id = excluded.replay_id, blocking = excluded.blocking,
    error = excluded.error, discarded_at = null
), history as (
  insert into ${s}.outbox_failures (seq, attempt, relay, target, code, error)
  select m.seq, x.attempts, $1::bigint, e.value ->> 'target', e.value ->> 'code', e.value ->> 'error'
    from mine m join (select * from kept union all select * from buried) x on x.seq = m.seq
    cross join lateral jsonb_array_elements(m.errors) e
   where m.fate not in ('release', 'shelve')
)
select array(select i.seq from input i where i.seq not in (select seq from mine))`;

export const failSql = perSchema(failText);

/** What went wrong with one target. Texts are cut to a limit and freed of NUL before they come here. */
export interface TargetError {
  target: string | null;
  code: string;
  error: string;
}

/**
 * What becomes of an event that was not delivered:
 * - `retry`: it failed, the attempt counts, it is due again after `delayMs`;
 * - `release`: it was not tried or not at fault, nothing counts; due after `delayMs`, or ready without one;
 * - `shelve`: it has reached all of its targets but those that are away, and waits for these outside of the queue;
 * - `bury`: it failed for good and becomes a dead letter, its key goes on;
 * - `hold`: the same, and its key waits until the dead letter is resolved.
 */
export type Failure = {
  seq: string;
  /** Failed attempts when it was claimed. */
  attempts: number;
} & (
  | ({
      fate: 'retry';
      delayMs: number;
      done: readonly string[];
      errors: readonly TargetError[];
      /** Whether it failed without having been delivered: because the relay before this one ended. */
      isUntried?: boolean;
    } & Owing)
  | ({ fate: 'release'; delayMs?: number; done?: readonly string[] } & Owing)
  | { fate: 'shelve'; done: readonly string[]; waitsFor: readonly string[] }
  | ({ fate: 'bury' | 'hold'; reason: DeadReason; done: readonly string[]; errors: readonly TargetError[] } & Owing)
);

interface Owing {
  /** Targets it must still reach: destinations by name, handlers as `type:name`. Without it, those it had stay. */
  owed?: readonly string[];
}

/**
 * Why an event became a dead letter: its attempts ran out; a target rejected it, or the database its result; no handler
 * knew its type; relay after relay ended while delivering it; or an operator forgot the only destination it was for, or
 * cancelled it.
 */
export const deadReasons = ['exhausted', 'rejected', 'no_handler', 'crashed', 'forgotten', 'cancelled'] as const;
export type DeadReason = (typeof deadReasons)[number];

// The function runs in the transaction of the statement that calls it, and changes other events than that statement.
const failAndSettleSql = perSchema((s) => `${failText(s)}, ${settleCall(s, 3)}`);

/**
 * Gives events back or buries them, for the relay that holds them, and settles the events of `settled` in the same
 * statement: a lost connection or a crash between the two would bring a failed event back behind a later one of its key
 * that is already settled (G4). Returns the seqs that the relay no longer holds (G5).
 */
export async function fail(
  query: ArrayQuery,
  schema: string,
  token: string,
  failures: readonly Failure[],
  settled: readonly Settlement[] = [],
): Promise<string[]> {
  const input = failures.map((failure) => ({
    seq: failure.seq,
    attempts: failure.attempts,
    fate: failure.fate,
    delay_ms: 'delayMs' in failure ? failure.delayMs : undefined,
    done: failure.done,
    reason: 'reason' in failure ? failure.reason : undefined,
    errors: 'errors' in failure ? failure.errors : undefined,
    waits_for: 'waitsFor' in failure ? failure.waitsFor : undefined,
    untried: 'isUntried' in failure ? failure.isUntried : undefined,
    owed: 'owed' in failure ? failure.owed : undefined,
  }));
  const values = [token, JSON.stringify(input)];
  const { rows } = await (settled.length === 0
    ? query(failSql(schema), values)
    : query(failAndSettleSql(schema), [...values, ...settleValues(settled)]));
  return (rows[0] as string[][]).flat();
}
