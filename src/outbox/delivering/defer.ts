import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

/** Claims walk over shorter backlogs at almost no cost. */
const longBacklog = 1_000;
const rowsMax = 20_000;

/** See migrations/routines/defer.sql for the contract and the rationale. */
export const deferSql = perSchema((s) => `select ${s}.defer($1::bigint[], $2::integer, $3::integer)`);

/** Defers events that a claim found blocked until the event that they wait for is due. */
export async function defer(db: Executor, schema: string, seqs: readonly string[]): Promise<void> {
  await db.query(deferSql(schema), [seqs, rowsMax, longBacklog]);
}

/** See migrations/routines/defer_keys.sql for the contract and the rationale. */
const deferKeysSql = perSchema((s) => `select ${s}.defer_keys($1::bigint[], $2::integer, $3::integer)`);

/** Defers the long backlogs of keys whose deliveries are slow, for at most twenty seconds. Returns the keys that had one. */
export async function deferKeys(db: Executor, schema: string, keys: readonly string[]): Promise<string[]> {
  const { rows } = await db.query(deferKeysSql(schema), [keys, rowsMax, longBacklog]);
  return rows[0]?.defer_keys as string[];
}

/** See migrations/routines/undefer_keys.sql for the contract and the rationale. */
const undeferKeysSql = perSchema((s) => `select ${s}.undefer_keys($1::bigint[], $2::integer)`);

/** Makes the next events of deferred keys ready again, some of each. Returns the keys that had any. */
export async function undeferKeys(
  db: Executor,
  schema: string,
  keys: readonly string[],
  perKeyMax: number,
): Promise<string[]> {
  const { rows } = await db.query(undeferKeysSql(schema), [keys, perKeyMax]);
  return rows[0]?.undefer_keys as string[];
}
