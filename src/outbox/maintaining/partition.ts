import type { PartitionChoice } from '../../database/migrate-options.ts';

/** How many seqs a partition has room for: number n begins at n times this. The SQL functions use the same number. */
const room = '1000000000000';

/** The calendar unit of a partition, in UTC. */
export type PartitionUnit = Exclude<PartitionChoice, 'none'>;

export const partitionUnits: readonly PartitionUnit[] = ['day', 'month'];

/**
 * The condition that a row of the delivery record covers a seq, both given as expressions. The bounds are redundant: no row
 * reaches into another partition. They let PostgreSQL read only one partition, because rows are partitioned by their lowest
 * seq.
 */
export function covers(record: string, seq: string): string {
  return `${record}.seqs @> ${seq} and lower(${record}.seqs) >= ${seq} / ${room} * ${room}
       and lower(${record}.seqs) < (${seq} / ${room} + 1) * ${room}`;
}

/** The first seq of a partition, and the first one after it. */
export function seqsOf(number: string): { first: string; beyond: string } {
  return { first: `${number} * ${room}`, beyond: `(${number} + 1) * ${room}` };
}
