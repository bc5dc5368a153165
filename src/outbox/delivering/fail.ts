import type { ArrayQuery } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import type { Settlement } from './settle.ts';
import { settleCall, settleValues } from './settle.ts';

/** The call of the function in migrations/routines/fail.sql, which has the contract and the rationale. */
const failCall = (s: string): string => `${s}.fail($1::bigint, $2::jsonb)`;

export const failSql = perSchema((s) => `select ${failCall(s)}`);

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
 * - `dead_letter`: it failed for good and becomes a dead letter, its key goes on;
 * - `block`: the same, and its key waits until the dead letter is resolved.
 */
export type Failure = {
  seq: string;
  /** Failed attempts when it was claimed. */
  attempts: number;
} & (
  | ({
      transition: 'retry';
      delayMs: number;
      done: readonly string[];
      errors: readonly TargetError[];
      /** Whether it failed without having been delivered: because the relay before this one ended. */
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

export const failAndSettleSql = perSchema((s) => `select ${failCall(s)}, ${settleCall(s, 3)}`);

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
    transition: failure.transition,
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
