import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

const dropSql = perSchema(
  (s) =>
    `select ${s}.drop_partition($1::text::bigint, nullif($2::text, '')::double precision, $3::text::integer)::text as json`,
);

/**
 * `unknown`, `spare`, `open`, `young`: not to be dropped at all, or not yet. `locked`: somebody is at it; try again.
 * `failed`: PostgreSQL refused, because something of the user's stands on it. `orphans`: events in it are neither queued nor
 * recorded as delivered. `unchecked`: the search for orphans is not at its end; the next call goes on with it.
 */
export type WhyKept =
  | 'unknown'
  | 'spare'
  | 'open'
  | 'young'
  | 'undelivered'
  | 'dead letters'
  | 'orphans'
  | 'unchecked'
  | 'locked'
  | 'failed';

export type DropResult =
  | { dropped: number; deadLetters: number }
  | { kept: WhyKept; count?: number; closedAt?: string; error?: string };

export interface DropOptions {
  /** Only if it was closed so long ago. Default: at any age. */
  keepMs?: number;
  /** How long to wait for the locks, and every writer behind us. Default 200. */
  lockTimeoutMs?: number;
}

/**
 * Drops a partition, its log and its record, in one transaction; unless it is in use or holds what is not delivered.
 * Events of dead letters that nobody has resolved move to the default partition first. Harmless if called twice.
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

/** Removes failures and given up dead letters of a dropped partition, some 200,000 rows at the most. */
export async function sweepPartition(db: Executor, schema: string, number: number): Promise<void> {
  for (let sweep = 1; sweep <= sweepsMax; sweep++) {
    const [removed] = await readJson<number>(db, sweepSql(schema), [String(number)]);
    if (removed === 0) return;
  }
}

// Oldest first. What was dropped and not yet swept comes along.
const findExpiredSql = perSchema(
  (s) => `
select json_build_object('number', number, 'dropped', dropped_at is not null)::text as json
  from ${s}.outbox_partitions
 where dropped_at is not null or closed_at <= now() - $1::text::double precision * interval '1 millisecond'
 order by number limit $2::text::integer`,
);

/** Looked at in one call. More than that can only be kept by events that nobody delivers. */
const expiredMax = 1_000;
/** Each of them stops the writers for some milliseconds. */
const dropsMax = 3;

export interface DropExpiredOptions {
  /** How long to keep a partition after it was closed. `Infinity`: for ever. */
  keepMs: number;
  lockTimeoutMs?: number;
}

export interface DropExpiredResult {
  dropped: number[];
  /** Partitions that are old enough and stay, with the reason in plain words. */
  kept: { number: number; reason: string }[];
  /** Whether to call it again at once: it dropped as many as it may in one call, or has more to check. */
  more: boolean;
}

/**
 * Drops partitions that were closed longer ago than `keepMs`, oldest first and three at the most. All is checked again
 * under locks by the database, so it does no harm when two relays believe that they lead.
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
        // Whoever holds the lock would hold up the next attempt as well, and the writers with it.
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

/** Why a partition stays, in plain words. */
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
    case 'orphans':
      return `${count >= 1_000 ? 'at least ' : ''}${count} of its events ${count === 1 ? 'was' : 'were'} never queued: run postcommit requeue-orphans`;
    case 'unchecked':
      return 'its events are still being checked';
    case 'failed':
      return `PostgreSQL refuses to drop it: ${error}`;
    case 'locked':
      return 'another session uses the log; it is tried again';
  }
}
