import type { PartitionChoice } from '../../database/migrate.ts';

/** How many seqs a partition has room for: number n begins at n times this. Migration 0005 has the same number. */
const room = '1000000000000';

/** What a partition is meant to hold. The calendar is that of UTC. */
export type PartitionUnit = Exclude<PartitionChoice, 'none'>;

export const partitionUnits: readonly PartitionUnit[] = ['day', 'month'];

/**
 * The condition that a row of the delivery record covers a seq, for both as expressions. The bounds say nothing new: no
 * row reaches into another partition. They let PostgreSQL look into that one partition only, since it knows which one
 * a row is in by the lowest of its seqs.
 */
export function covers(record: string, seq: string): string {
  return `${record}.seqs @> ${seq} and lower(${record}.seqs) >= ${seq} / ${room} * ${room}
       and lower(${record}.seqs) < (${seq} / ${room} + 1) * ${room}`;
}

/** The first seq of a partition, and the first one behind it. */
export function seqsOf(number: string): { first: string; beyond: string } {
  return { first: `${number} * ${room}`, beyond: `(${number} + 1) * ${room}` };
}
