import type { AssignedRecord, TopicPartition } from './delivery.ts';

/**
 * Divides records into rounds that are sent one after the other. In a round no partition gets more bytes than its limit,
 * and all records of a key go to one partition, so that a failure cannot be passed by what is behind it.
 */
export function planRounds(
  records: readonly AssignedRecord[],
  bytesMax: (topic: string) => number,
): (readonly AssignedRecord[])[] {
  if (fitsInOne(records, bytesMax)) return [records];
  const rounds: AssignedRecord[][] = [];
  const partitions = new Map<TopicPartition, { round: number; bytes: number }>();
  const keys = new Map<string, { round: number; topicPartition: TopicPartition }>();
  for (const assigned of records) {
    const { key, topic } = assigned.record;
    const filled = partitions.get(assigned.topicPartition) ?? { round: 0, bytes: 0 };
    const before = key === null ? undefined : keys.get(key);
    const earliest =
      before === undefined ? 0 : before.topicPartition === assigned.topicPartition ? before.round : before.round + 1;
    const isFull = filled.bytes > 0 && filled.bytes + assigned.bytes > bytesMax(topic);
    const round = Math.max(earliest, isFull ? filled.round + 1 : filled.round);
    const bytes = round === filled.round ? filled.bytes + assigned.bytes : assigned.bytes;
    partitions.set(assigned.topicPartition, { round, bytes });
    if (key !== null) keys.set(key, { round, topicPartition: assigned.topicPartition });
    const planned = rounds[round];
    if (planned) planned.push(assigned);
    else rounds[round] = [assigned];
  }
  return rounds;
}

/** Most batches have one topic, so that a key has one partition, and are far from any limit. */
function fitsInOne(records: readonly AssignedRecord[], bytesMax: (topic: string) => number): boolean {
  const [first] = records;
  if (first === undefined) return true;
  const { topic } = first.topicPartition;
  let bytes = 0;
  for (const assigned of records) {
    if (assigned.topicPartition.topic !== topic) return false;
    bytes += assigned.bytes;
  }
  if (bytes <= bytesMax(topic)) return true;
  const byPartition = new Map<TopicPartition, number>();
  for (const { topicPartition, bytes } of records)
    byPartition.set(topicPartition, (byPartition.get(topicPartition) ?? 0) + bytes);
  return Math.max(...byPartition.values()) <= bytesMax(topic);
}
