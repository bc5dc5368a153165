import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { storeText } from '../../database/storable-text.ts';
import { readJson } from '../read-json.ts';

const readRunsSql = perSchema(
  (s) => `
select json_build_object('task', m.task, 'agoMs', extract(epoch from clock_timestamp() - m.ran_at) * 1000,
                         'cursor', m.cursor_seq::text,
                         'cycleAgoMs', extract(epoch from clock_timestamp() - m.cycle_at) * 1000)::text as json
  from ${s}.outbox_maintenance m`,
);

/** The last run of a maintenance task, whichever relay led. */
export interface LastRun {
  task: string;
  agoMs: number;
  /** How far it has looked through the log. */
  cursor: string;
  /** How long ago the current cycle began. */
  cycleAgoMs: number | null;
}

export async function readRuns(db: Executor, schema: string): Promise<LastRun[]> {
  return readJson<LastRun>(db, readRunsSql(schema));
}

// The share lock on the duty's row makes a relay that takes over wait for this statement, so the two cannot overlap.
const recordRunSql = perSchema(
  (s) => `
with duty as materialized (
  select l.epoch from ${s}.outbox_leadership l
   where l.name = $1::text and l.epoch = $2::text::bigint and l.owner = $3::text::bigint for share
), written as (
  insert into ${s}.outbox_maintenance as m
    (task, epoch, duration_ms, changed, note, error, failures, succeeded_at, cursor_seq, cycle_at, keep_ms)
  select $4::text, epoch, $5::text::integer, $6::text::bigint, nullif($7::text, ''), nullif($8::text, ''),
         ($8::text <> '')::integer, case when $8::text = '' then now() end, coalesce(nullif($9::text, '')::bigint, 0), now(),
         nullif($11::text, '')::double precision
    from duty
  on conflict (task) do update
    set epoch = excluded.epoch, ran_at = now(), duration_ms = excluded.duration_ms, changed = excluded.changed,
        note = excluded.note, error = excluded.error, keep_ms = excluded.keep_ms,
        failures = case when excluded.error is null then 0 else m.failures + 1 end,
        succeeded_at = coalesce(excluded.succeeded_at, m.succeeded_at),
        cursor_seq = case when $9::text = '' then m.cursor_seq else excluded.cursor_seq end,
        cycle_at = case when $10::text = 'true' then now() else m.cycle_at end
  returning m.task
)
select to_json(count(*))::text as json from written`,
);

export interface TaskRun {
  task: string;
  durationMs: number;
  /** Rows that it removed, or other changes it made. */
  changed: number;
  /** What it left undone, and why. */
  note?: string | undefined;
  error?: string | undefined;
  /** How far it has looked through the log. */
  cursor?: string | undefined;
  /** Whether it started from the beginning of the log again. */
  newCycle?: boolean | undefined;
  /** The age at which it removes rows, in milliseconds; `Infinity` for never. */
  keepMs?: number | undefined;
}

/** Records the run of a task. Returns false if this relay no longer has the duty; nothing was written then. */
export async function recordRun(
  db: Executor,
  schema: string,
  { name, owner, epoch }: { name: string; owner: string; epoch: string },
  run: TaskRun,
): Promise<boolean> {
  const { task, durationMs, changed, note = '', error = '', cursor = '', newCycle = false, keepMs } = run;
  const duration = String(Math.round(durationMs));
  const values = (text: string) => [
    name,
    epoch,
    owner,
    task,
    duration,
    String(changed),
    note,
    text,
    cursor,
    String(newCycle),
    keepMs === undefined ? '' : String(keepMs),
  ];
  const [count] = await storeText(error, (text) => readJson<number>(db, recordRunSql(schema), values(text)));
  return count === 1;
}
