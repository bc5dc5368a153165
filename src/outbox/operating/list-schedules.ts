import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { optional, readJson, toDate } from '../read-json.ts';

/** A tick that was not emitted for longer than this is overdue: longer than it takes another relay to take over. */
const overdueMs = 60_000;

const listSchedulesSql = perSchema(
  (s) => `
select json_build_object(
  'name', x.name, 'cron', x.cron, 'timeZone', x.time_zone, 'lastTickAt', x.last_tick_at, 'nextTickAt', x.next_tick_at,
  'overdue', coalesce(x.next_tick_at, x.changed_at) < now() - ${overdueMs} * interval '1 millisecond',
  'pausedAt', x.paused_at, 'reason', x.reason, 'emitted', x.emitted,
  'triggersWaiting', x.triggers_requested - x.triggers_emitted, 'failures', x.failures, 'error', x.error,
  'declaredBy', x.declared_by, 'declaredAt', x.declared_at,
  'declarations', coalesce((
    select json_agg(d.value order by r.name, r.token) from jsonb_each(x.declarations) d
      join ${s}.outbox_relays r on r.token = d.key::bigint and r.ended_at is null), '[]')
)::text as json
  from ${s}.outbox_schedules x order by x.name`,
);

/** What one relay declares about a schedule. */
export interface ScheduleDeclaration {
  /** Name of the relay. */
  relay: string;
  cron: string;
  timeZone: string;
}

/** A schedule as operators see it. */
export interface ScheduleInfo {
  name: string;
  /**
   * `active`: ticks are emitted. `paused`: by an operator. `unserved`: no live relay has it. `failing`: its last tick could not be
   * emitted, and is retried. `overdue`: a tick is due for over a minute, and no relay has emitted it.
   */
  state: 'active' | 'paused' | 'unserved' | 'failing' | 'overdue';
  /** The expression in force. */
  cron: string;
  timeZone: string;
  /** The last tick that was emitted. */
  lastTickAt?: Date;
  /** Absent until a relay has computed it. */
  nextTickAt?: Date;
  /** Ticks and triggers that were emitted. */
  emitted: number;
  /** Triggers that no relay has emitted yet. */
  triggersWaiting: number;
  pausedAt?: Date;
  /** Why it was paused. */
  reason?: string;
  /** Consecutive failures to emit. */
  failures: number;
  /** Why the last one failed. */
  error?: string;
  /** Name of the relay that declared it last, when it started. */
  declaredBy: string;
  declaredAt: Date;
  /** What each live relay declares. During a rolling deployment these may differ. */
  declarations: ScheduleDeclaration[];
}

interface ScheduleRow {
  name: string;
  cron: string;
  timeZone: string;
  lastTickAt: string | null;
  nextTickAt: string | null;
  overdue: boolean;
  pausedAt: string | null;
  reason: string | null;
  emitted: number;
  triggersWaiting: number;
  failures: number;
  error: string | null;
  declaredBy: string;
  declaredAt: string;
  declarations: ScheduleDeclaration[];
}

/** Every schedule that a relay was started with and that was not removed, by name. */
export async function listSchedules(db: Executor, schema: string): Promise<ScheduleInfo[]> {
  const rows = await readJson<ScheduleRow>(db, listSchedulesSql(schema));
  return rows.map((row) => ({
    name: row.name,
    state: stateOf(row),
    cron: row.cron,
    timeZone: row.timeZone,
    ...optional('lastTickAt', row.lastTickAt, toDate),
    ...optional('nextTickAt', row.nextTickAt, toDate),
    emitted: row.emitted,
    triggersWaiting: row.triggersWaiting,
    ...optional('pausedAt', row.pausedAt, toDate),
    ...optional('reason', row.reason, String),
    failures: row.failures,
    ...optional('error', row.error, String),
    declaredBy: row.declaredBy,
    declaredAt: toDate(row.declaredAt),
    declarations: row.declarations,
  }));
}

function stateOf({ pausedAt, declarations, failures, overdue }: ScheduleRow): ScheduleInfo['state'] {
  if (pausedAt !== null) return 'paused';
  if (declarations.length === 0) return 'unserved';
  if (failures > 0) return 'failing';
  return overdue ? 'overdue' : 'active';
}
