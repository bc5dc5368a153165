import { AnswerIncomplete, type KafkaRecord, SomeFailed } from './port.ts';

/** A partition that the client reports as stored. */
export interface AnsweredPartition {
  readonly topic: string;
  readonly partition: number;
}

/**
 * The records whose partition the client's answer does not name. kafkajs 2.2.4 resolves without sending a partition that
 * its metadata no longer has, and without repeating a partition that moved during a retry to a broker that has answered
 * earlier in the same call.
 */
export function missingFrom(
  answered: Iterable<AnsweredPartition>,
  records: readonly KafkaRecord[],
): Map<KafkaRecord, AnswerIncomplete> {
  const partitionsByTopic = new Map<string, Set<number>>();
  for (const { topic, partition } of answered) {
    const partitions = partitionsByTopic.get(topic);
    if (partitions) partitions.add(partition);
    else partitionsByTopic.set(topic, new Set([partition]));
  }
  const missing = new Map<KafkaRecord, AnswerIncomplete>();
  for (const record of records) {
    const { topic, partition } = record;
    const partitions = partitionsByTopic.get(topic);
    // Where the client chose the partition, the topic is all there is to compare.
    const isNamed = partitions !== undefined && (partition === undefined || partitions.has(partition));
    if (!isNamed) missing.set(record, new AnswerIncomplete(record));
  }
  return missing;
}

/** kafkajs's answer, which names one partition an entry. */
export function checkKafkajsAnswer(
  answer: readonly { topicName: string; partition: number }[],
  records: readonly KafkaRecord[],
): void {
  const answered = answer.map(({ topicName, partition }) => ({ topic: topicName, partition }));
  const missing = missingFrom(answered, records);
  if (missing.size > 0) throw new SomeFailed(missing);
}
