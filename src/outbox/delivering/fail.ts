import type { ArrayQuery } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import type { Settlement } from './settle.ts';
import { settleValues } from './settle.ts';

/** See migrations/routines/fail.sql for the contract and the rationale. */
export const failSql = perSchema((s) => `select ${s}.fail($1::bigint, $2::jsonb)`);

/** See migrations/routines/fail_and_settle.sql for the contract and the rationale. */
export const failAndSettleSql = perSchema(
  (s) => `select ${s}.fail_and_settle($1::bigint, $2::jsonb, $3::bigint[], $4::integer[], $5::jsonb)`,
);

/** The error of one target. The caller has truncated the texts and removed NUL. */
export interface TargetError {
  target: string | null;
  code: string;
  error: string;
  /** Where the user's code threw it. For the log: it is not stored. */
  stack?: string;
}

/**
 * The transition of an event that was not delivered:
 * - `retry`: it failed, the attempt counts, it is due again after `delayMs`;
 * - `release`: it was not tried or is not at fault, no attempt counts; due after `delayMs`, or ready without it;
 * - `shelve`: it has reached all of its targets except those that are down, and waits for these on the shelf;
 * - `dead_letter`: it failed for good, its key continues;
 * - `block`: it failed for good, its key waits until the dead letter is resolved.
 */
export type Failure = {
  seq: string;
  /** Failed attempts when the event was claimed. */
  attempts: number;
} & (
  | ({
      transition: 'retry';
      delayMs: number;
      done: readonly string[];
      errors: readonly TargetError[];
      /** Whether it failed without a delivery, because the relay before this one ended. */
      isUntried?: boolean;
    } & Owing)
  | ({ transition: 'release'; delayMs?: number; done?: readonly string[] } & Owing)
  | { transition: 'shelve'; done: readonly string[]; waitsFor: readonly string[] }
  | ({
      transition: 'dead_letter' | 'block';
      reason: DeadReason;
      done: readonly string[];
      errors: readonly TargetError[];
    } & Owing)
);

interface Owing {
  /** Targets it must still reach: destinations by name, handlers as `type:name`. If absent, the event keeps its old ones. */
  owed?: readonly string[];
}

/**
 * Why an event became a dead letter: its attempts were used up; a target rejected it, or the database rejected its result; no
 * handler exists for its type; several relays ended while they delivered it; an operator forgot its only destination, or
 * cancelled it.
 */
export const deadReasons = ['exhausted', 'rejected', 'no_handler', 'crashed', 'forgotten', 'cancelled'] as const;
export type DeadReason = (typeof deadReasons)[number];

/**
 * Records the transitions of undelivered events, for the relay that claimed them, and settles the events of `settled` in the
 * same statement: after a crash between two statements, a failed event would be queued behind a later one of its key that is
 * already settled (G4). Returns the seqs that the relay no longer owns (G5).
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
    transition: failure.transition,
    delay_ms: 'delayMs' in failure ? failure.delayMs : undefined,
    done: failure.done,
    reason: 'reason' in failure ? failure.reason : undefined,
    errors:
      'errors' in failure ? failure.errors.map(({ target, code, error }) => ({ target, code, error })) : undefined,
    waits_for: 'waitsFor' in failure ? failure.waitsFor : undefined,
    untried: 'isUntried' in failure ? failure.isUntried : undefined,
    owed: 'owed' in failure ? failure.owed : undefined,
  }));
  const values = [token, JSON.stringify(input)];
  const { rows } = await (settled.length === 0
    ? query(failSql(schema), values)
    : query(failAndSettleSql(schema), [...values, ...settleValues(settled)]));
  return rows[0]?.[0] as string[];
}
