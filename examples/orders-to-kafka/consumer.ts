import { Kafka, logLevel } from 'kafkajs';
import type { Billing } from '../billing.ts';

export interface Consumer {
  stop(): Promise<void>;
}

/** Hands the events of a topic to billing, those of one order in order: their key is the order's id. */
export async function startConsumer(brokers: string[], topic: string, billing: Billing): Promise<Consumer> {
  const kafka = new Kafka({ brokers, logLevel: logLevel.NOTHING });
  const admin = kafka.admin();
  const consumer = kafka.consumer({ groupId: topic });
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 3 }], waitForLeaders: true });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    // What it throws makes kafkajs deliver the message again.
    eachMessage: async ({ message }) => billing.receive(JSON.parse(String(message.value))),
  });
  return {
    async stop() {
      await consumer.disconnect();
      await admin.deleteTopics({ topics: [topic] });
      await admin.disconnect();
    },
  };
}
