import type { ArrayQuery } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

/** See migrations/routines/settle.sql for the contract and the rationale. */
export const settleSql = perSchema((s) => `select ${s}.settle($1::bigint, $2::bigint[], $3::integer[], $4::jsonb)`);

export interface Settlement {
  seq: string;
  /** Every target that has the event. */
  targets: readonly string[];
}

/**
 * Removes delivered events from the queue and records the delivery, for the relay that claimed them. Returns the seqs that
 * are not under this token: another relay owns them now (G5).
 */
export async function settle(
  query: ArrayQuery,
  schema: string,
  token: string,
  settled: readonly Settlement[],
): Promise<string[]> {
  const { rows } = await query(settleSql(schema), [token, ...settleValues(settled)]);
  return rows[0]?.[0] as string[];
}

/** The last parameters of `settle` and `fail_and_settle`: the events, grouped by their targets. */
export function settleValues(settled: readonly Settlement[]): unknown[] {
  const groups = new Map<string, string[]>();
  for (const { seq, targets } of settled) {
    const key = JSON.stringify(targets);
    const group = groups.get(key);
    if (group) group.push(seq);
    else groups.set(key, [seq]);
  }
  const seqs = [...groups.values()];
  return [
    `{${seqs.join(',')}}`, // Text: an array would be escaped element by element.
    seqs.map((group) => group.length),
    `[${[...groups.keys()].join(',')}]`,
  ];
}
