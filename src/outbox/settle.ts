import type { ArrayQuery } from '../database/executor.ts';
import { perSchema } from '../database/identifier.ts';

/** What it does, and why so, is told in migrations/0004_relay.sql. */
export const settleSql = perSchema((s) => `select ${s}.settle($1, $2, $3, $4)`);

export interface Settlement {
  seq: string;
  /** Every target that has the event now. */
  targets: readonly string[];
}

/**
 * Removes delivered events from the queue and records the delivery, for the relay that holds them.
 * Answers the seqs it did not find under this token: somebody else owns them now (G5).
 */
export async function settle(
  query: ArrayQuery,
  schema: string,
  token: string,
  settled: readonly Settlement[],
): Promise<string[]> {
  const groups = new Map<string, string[]>();
  for (const { seq, targets } of settled) {
    const key = JSON.stringify(targets);
    const group = groups.get(key);
    if (group) group.push(seq);
    else groups.set(key, [seq]);
  }
  const seqs = [...groups.values()];
  const { rows } = await query(settleSql(schema), [
    token,
    `{${seqs.join(',')}}`, // Text: an array would be escaped element by element.
    seqs.map((group) => group.length),
    `[${[...groups.keys()].join(',')}]`,
  ]);
  return rows[0]?.[0] as string[];
}
