import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { optional, readJson, toDate } from '../read-json.ts';

const listMaintenanceSql = perSchema(
  (s) => `
select json_build_object(
  'leader', (
    select json_build_object('name', r.name, 'host', r.host, 'pid', r.pid, 'token', r.token::text,
                             'epoch', l.epoch::text, 'since', l.acquired_at)
      from ${s}.outbox_leadership l join ${s}.outbox_relays r on r.token = l.owner
     where l.name = 'maintenance' and l.lease_until > now() and r.ended_at is null),
  'tasks', coalesce((
    select json_agg(json_build_object(
             'task', m.task, 'ranAt', m.ran_at, 'durationMs', m.duration_ms, 'changed', m.changed, 'note', m.note,
             'error', m.error, 'failures', m.failures, 'succeededAt', m.succeeded_at,
             'keepMs', m.keep_ms::text) order by m.task)
      from ${s}.outbox_maintenance m), '[]')
)::text as json`,
);

/** The last maintenance runs. */
export interface MaintenanceInfo {
  /** The relay that does maintenance now; absent if none does. */
  leader?: MaintenanceLeader;
  tasks: MaintenanceTaskInfo[];
}

export interface MaintenanceLeader {
  name: string;
  host: string;
  pid: number;
  token: string;
  /** Grows with each change of leader. */
  epoch: string;
  since: Date;
}

export interface MaintenanceTaskInfo {
  task: string;
  ranAt: Date;
  durationMs: number;
  /** Rows that the last run removed, or other changes it made. */
  changed: number;
  /** What the last run left undone, and why. */
  note?: string;
  /** Why the last run failed. */
  error?: string;
  /** Consecutive failed runs. */
  failures: number;
  succeededAt?: Date;
  /** The age at which the task removes rows, in milliseconds; `Infinity` for never. Absent if it has none. */
  keepMs?: number;
}

interface Row {
  leader: (Omit<MaintenanceLeader, 'since'> & { since: string }) | null;
  tasks: {
    task: string;
    ranAt: string;
    durationMs: number;
    changed: number;
    note: string | null;
    error: string | null;
    failures: number;
    succeededAt: string | null;
    keepMs: string | null;
  }[];
}

export async function listMaintenance(db: Executor, schema: string): Promise<MaintenanceInfo> {
  const [row] = await readJson<Row>(db, listMaintenanceSql(schema));
  const { leader, tasks } = row as Row;
  return {
    ...optional('leader', leader, (found) => ({ ...found, since: toDate(found.since) })),
    tasks: tasks.map(({ ranAt, note, error, succeededAt, keepMs, ...same }) => ({
      ...same,
      ranAt: toDate(ranAt),
      ...optional('note', note, String),
      ...optional('error', error, String),
      ...optional('succeededAt', succeededAt, toDate),
      ...optional('keepMs', keepMs, Number),
    })),
  };
}
