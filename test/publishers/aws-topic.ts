import { randomUUID } from 'node:crypto';
import { CreateTopicCommand, SNSClient, SubscribeCommand } from '@aws-sdk/client-sns';
import type { ReceivedMessage } from '../../src/testing/index.ts';
import { QueueConsumer, testAccess } from './aws-queue.ts';

/** Topics of SNS, each with a queue that gets its messages as they are. */
export class TopicConsumer {
  readonly queues: QueueConsumer;
  readonly #client: SNSClient;
  readonly #queueUrls = new Map<string, string>();

  constructor(endpoint: string) {
    this.queues = new QueueConsumer(endpoint);
    this.#client = new SNSClient({ ...testAccess, endpoint });
  }

  /** The ARN of a new topic. */
  async createTopic(kind: 'fifo' | 'standard', name = `topic-${randomUUID()}`): Promise<string> {
    const fifo = kind === 'fifo';
    const { TopicArn } = await this.#client.send(
      new CreateTopicCommand({ Name: fifo ? `${name}.fifo` : name, Attributes: fifo ? { FifoTopic: 'true' } : {} }),
    );
    if (!TopicArn) throw new Error('no topic ARN');
    const queueUrl = await this.queues.createQueue(kind);
    const subscription = { Protocol: 'sqs', Endpoint: await this.queues.arnOf(queueUrl) };
    const Attributes = { RawMessageDelivery: 'true' };
    await this.#client.send(new SubscribeCommand({ TopicArn, ...subscription, Attributes }));
    this.#queueUrls.set(TopicArn, queueUrl);
    return TopicArn;
  }

  queueOf(topicArn: string): string {
    return this.#queueUrls.get(topicArn) ?? '';
  }

  read(topicArn: string, count: number): Promise<ReceivedMessage[]> {
    return this.queues.read(this.queueOf(topicArn), count);
  }

  close(): void {
    this.#client.destroy();
    this.queues.close();
  }
}
