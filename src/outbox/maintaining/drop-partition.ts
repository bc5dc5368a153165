import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

const dropSql = perSchema(
  (s) =>
    `select ${s}.drop_partition($1::text::bigint, nullif($2::text, '')::double precision, $3::text::integer)::text as json`,
);

/**
 * `unknown`, `spare`, `open`, `young`: never dropped, or not yet. `locked`: another session uses it; try again. `failed`:
 * PostgreSQL refused, because a user's object depends on it. `unqueued`: events in it are neither queued nor recorded as
 * delivered. `unchecked`: the search for unqueued events is not finished; the next call continues it.
 */
export type WhyKept =
  | 'unknown'
  | 'spare'
  | 'open'
  | 'young'
  | 'undelivered'
  | 'dead letters'
  | 'unqueued'
  | 'unchecked'
  | 'locked'
  | 'failed';

export type DropResult =
  | { dropped: number; deadLetters: number }
  | { kept: WhyKept; count?: number; closedAt?: string; error?: string };

export interface DropOptions {
  /** Only if it was closed at least this long ago. Default: at any age. */
  keepMs?: number;
  /** How long to wait for the locks, in milliseconds. Writers wait as long. Default 200. */
  lockTimeoutMs?: number;
}

/**
 * Drops a partition, its log and its record, in one transaction, unless it is in use or contains undelivered events. Events
 * of unresolved dead letters move to the default partition first. Safe to repeat.
 */
export async function dropPartition(
  db: Executor,
  schema: string,
  number: number,
  { keepMs, lockTimeoutMs = 200 }: DropOptions = {},
): Promise<DropResult> {
  const values = [String(number), keepMs === undefined ? '' : String(keepMs), String(lockTimeoutMs)];
  const [result] = await readJson<DropResult>(db, dropSql(schema), values);
  return result as DropResult;
}

const sweepSql = perSchema((s) => `select ${s}.sweep_partition($1::text::bigint, 10000)::text as json`);
const sweepsMax = 20;

/** Removes failures and discarded dead letters of a dropped partition, at most about 200,000 rows. */
export async function sweepPartition(db: Executor, schema: string, number: number): Promise<void> {
  for (let sweep = 1; sweep <= sweepsMax; sweep++) {
    const [removed] = await readJson<number>(db, sweepSql(schema), [String(number)]);
    if (removed === 0) return;
  }
}

// Oldest first. Includes partitions that were dropped and not yet swept.
const findExpiredSql = perSchema(
  (s) => `
select json_build_object('number', number, 'dropped', dropped_at is not null)::text as json
  from ${s}.outbox_partitions
 where dropped_at is not null or closed_at <= now() - $1::text::double precision * interval '1 millisecond'
 order by number limit $2::text::integer`,
);

/** Partitions examined per call. More can only accumulate if their events are never delivered. */
const expiredMax = 1_000;
/** Each drop blocks writers for some milliseconds. */
const dropsMax = 3;

export interface DropExpiredOptions {
  /** How long to keep a partition after it was closed. `Infinity`: forever. */
  keepMs: number;
  lockTimeoutMs?: number;
}

export interface DropExpiredResult {
  dropped: number[];
  /** Partitions that are old enough but were kept, each with the reason. */
  kept: { number: number; reason: string }[];
  /** Whether to call it again immediately: it reached its limit of drops, or has more to check. */
  more: boolean;
}

/**
 * Drops partitions that were closed longer ago than `keepMs`, oldest first, at most three. The database checks everything
 * again under locks, so it is safe if two relays consider themselves the leader.
 */
export async function dropExpired(
  db: Executor,
  schema: string,
  { keepMs, lockTimeoutMs }: DropExpiredOptions,
): Promise<DropExpiredResult> {
  const result: DropExpiredResult = { dropped: [], kept: [], more: false };
  if (keepMs === Number.POSITIVE_INFINITY) return result;
  const found = await readJson<{ number: number; dropped: boolean }>(db, findExpiredSql(schema), [
    String(keepMs),
    String(expiredMax),
  ]);
  for (const { number, dropped } of found) {
    if (!dropped) {
      const drop = await dropPartition(db, schema, number, {
        keepMs,
        ...(lockTimeoutMs !== undefined && { lockTimeoutMs }),
      });
      if ('kept' in drop) {
        if (drop.kept === 'unknown' || drop.kept === 'young') continue; // Another relay was faster, or the clock changed.
        result.kept.push({ number, reason: reasonOf(drop) });
        // The lock holder would block the next attempt as well, and writers behind it.
        if (drop.kept === 'locked') break;
        if (drop.kept === 'unchecked') {
          result.more = true;
          break;
        }
        continue;
      }
      result.dropped.push(number);
      result.more = true;
    }
    await sweepPartition(db, schema, number);
    if (result.dropped.length >= dropsMax) break;
  }
  return result;
}

/** Describes why a partition was kept. */
export function reasonOf({ kept, count = 0, error = '' }: Extract<DropResult, { kept: WhyKept }>): string {
  switch (kept) {
    case 'unknown':
      return 'there is no such partition';
    case 'spare':
      return 'it is a spare: no event was ever in it';
    case 'open':
      return 'new events go into it';
    case 'young':
      return 'it was closed too recently';
    case 'undelivered':
      return `${count >= 1_000 ? 'at least ' : ''}${count} of its events ${count === 1 ? 'is' : 'are'} not delivered yet`;
    case 'dead letters':
      return `${count} dead letters of it are not resolved, too many or too large to be kept without it`;
    case 'unqueued':
      return `${count >= 1_000 ? 'at least ' : ''}${count} of its events ${count === 1 ? 'was' : 'were'} never queued: run npx postcommit requeue-unqueued`;
    case 'unchecked':
      return 'its events are still being checked';
    case 'failed':
      return `PostgreSQL refuses to drop it: ${error}`;
    case 'locked':
      return 'another session uses the log; retrying later';
  }
}
