import type { Executor } from '../database/executor.ts';
import type { EventConditions } from '../outbox/conditions.ts';
import { locate } from '../outbox/locate.ts';

/** How far created_at may be out of step with seq: writers side by side, a clock set right, a failover to another host. */
const slackMs = 60_000;

/**
 * The part of the log that a time range can be in. The conditions on the time itself still decide; this only keeps
 * them from being tried on everything. An event inserted by hand with a `created_at` of its own, more than a minute
 * from its neighbours', may be missed.
 */
export async function seqRange(
  db: Executor,
  schema: string,
  { createdFrom, createdBefore }: EventConditions,
): Promise<{ seqFrom?: string | undefined; seqBefore?: string | undefined }> {
  const seqAt = async (time: string | undefined, shiftMs: number) =>
    time === undefined ? undefined : locate(db, schema, shifted(time, shiftMs));
  return { seqFrom: await seqAt(createdFrom, -slackMs), seqBefore: await seqAt(createdBefore, slackMs) };
}

/** Dates outside of these are written in a way that PostgreSQL does not read. */
const earliest = Date.parse('0001-01-01T00:00:00.000Z');
const latest = Date.parse('9999-12-31T23:59:59.999Z');

function shifted(time: string, ms: number): string {
  return new Date(Math.min(latest, Math.max(earliest, Date.parse(time) + ms))).toISOString();
}
