import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

/** What a transaction of a handler is for. */
export interface HandledEvent {
  seq: string;
  /** By which the handler's progress is kept. */
  handler: string;
  /** Every target that has the event once this one has it. `undefined`: others are still in flight. */
  targets: readonly string[] | undefined;
}

/** The time limits of the server for one transaction. 0: none. */
export interface TransactionLimits {
  statementTimeoutMs: number;
  idleTimeoutMs: number;
}

/**
 * Begins the transaction of a handler, in one round trip and without a query, so that the handler may still choose another
 * isolation level. `marker` has no quotes.
 */
export function beginHandlerSql(marker: string, { statementTimeoutMs, idleTimeoutMs }: TransactionLimits): string {
  return [
    'begin isolation level read committed read write',
    `set local postcommit.handler = '${marker}'`,
    `set local statement_timeout = ${Math.round(statementTimeoutMs)}`,
    `set local idle_in_transaction_session_timeout = ${Math.round(idleTimeoutMs)}`,
  ].join('; ');
}

/** See migrations/routines/settle_in_transaction.sql for the contract. */
const settleInTransactionSql = perSchema(
  (s) => `select ${s}.settle_in_transaction($1::bigint, $2::bigint, $3::text, $4::jsonb, $5::text) as result`,
);

export async function settleInTransaction(
  tx: Executor,
  schema: string,
  token: string,
  { seq, handler, targets }: HandledEvent,
  marker: string,
): Promise<'settled' | 'fenced' | 'ended'> {
  const values = [token, seq, handler, targets === undefined ? null : JSON.stringify(targets), marker];
  const { rows } = await tx.query(settleInTransactionSql(schema), values);
  return rows[0]?.result as 'settled' | 'fenced' | 'ended';
}

const findHandledSql = perSchema(
  (s) => `
select q.claimed_by = $2::bigint as own, $3::text = any (q.done) as done
  from ${s}.outbox_queue q where q.seq = $1::bigint for update`,
);

/**
 * Whether the transaction that settled this event has committed, for a relay that lost its connection during COMMIT. Waits, up
 * to the `lock_timeout`, for a transaction that is still open on the server: it may commit yet.
 */
export async function findHandled(
  tx: Executor,
  schema: string,
  token: string,
  { seq, handler, targets }: HandledEvent,
): Promise<'committed' | 'rolledBack' | 'fenced'> {
  const { rows } = await tx.query(findHandledSql(schema), [seq, token, handler]);
  const [row] = rows;
  if (row === undefined) return 'committed';
  if (row.own !== true) return 'fenced';
  return targets === undefined && row.done === true ? 'committed' : 'rolledBack';
}
