import { randomUUID } from 'node:crypto';
import {
  CreateQueueCommand,
  DeleteMessageBatchCommand,
  GetQueueAttributesCommand,
  type Message as QueueMessage,
  ReceiveMessageCommand,
  SQSClient,
} from '@aws-sdk/client-sqs';
import type { ReceivedMessage } from '../../src/testing/index.ts';
import { until } from '../support/wait.ts';

/** What any test server takes. */
export const testAccess = { region: 'us-east-1', credentials: { accessKeyId: 'test', secretAccessKey: 'test' } };

/** A consumer of SQS, for what was delivered to a queue, or to an SNS topic that the queue is subscribed to. */
export class QueueConsumer {
  readonly #client: SQSClient;
  /** Receiving takes a message away, so what was read of a queue is kept here. */
  readonly #readSoFar = new Map<string, ReceivedMessage[]>();

  constructor(endpoint: string) {
    this.#client = new SQSClient({ ...testAccess, endpoint });
  }

  /** A new queue; its URL ends with its name. */
  async createQueue(kind: 'fifo' | 'standard', name = `queue-${randomUUID()}`): Promise<string> {
    const fifo = kind === 'fifo';
    const command = { QueueName: fifo ? `${name}.fifo` : name, Attributes: fifo ? { FifoQueue: 'true' } : {} };
    const { QueueUrl } = await this.#client.send(new CreateQueueCommand(command));
    if (!QueueUrl) throw new Error('no queue URL');
    return QueueUrl;
  }

  async arnOf(queueUrl: string): Promise<string> {
    const command = new GetQueueAttributesCommand({ QueueUrl: queueUrl, AttributeNames: ['QueueArn'] });
    return (await this.#client.send(command)).Attributes?.QueueArn ?? '';
  }

  /** Everything since the beginning, once there are `count` messages. */
  async read(queueUrl: string, count: number): Promise<ReceivedMessage[]> {
    const received = this.#readSoFar.get(queueUrl) ?? [];
    this.#readSoFar.set(queueUrl, received);
    await until(
      async () => {
        for (let some = await this.receive(queueUrl); some.length > 0; some = await this.receive(queueUrl)) {
          received.push(...some.map(toReceived));
        }
        return received.length >= count;
      },
      { what: `${count} messages are in ${queueUrl}`, timeoutMs: 20_000 },
    );
    return received;
  }

  /** As SQS gives them, and takes them out of the queue. */
  async receive(queueUrl: string): Promise<QueueMessage[]> {
    const { Messages: messages = [] } = await this.#client.send(
      new ReceiveMessageCommand({
        QueueUrl: queueUrl,
        MaxNumberOfMessages: 10,
        MessageSystemAttributeNames: ['All'],
        MessageAttributeNames: ['All'],
      }),
    );
    if (messages.length === 0) return [];
    const Entries = messages.map(({ ReceiptHandle }, index) => ({ Id: String(index), ReceiptHandle }));
    await this.#client.send(new DeleteMessageBatchCommand({ QueueUrl: queueUrl, Entries }));
    return messages;
  }

  close(): void {
    this.#client.destroy();
  }
}

function toReceived({ Body = '', Attributes, MessageAttributes }: QueueMessage): ReceivedMessage {
  const all = Object.fromEntries(
    Object.entries(MessageAttributes ?? {}).map(([name, { StringValue = '' }]) => [name, StringValue]),
  );
  const headers: Record<string, string> = { ...all, ...JSON.parse(all['more-headers'] ?? '{}') };
  const bodyBytes = Buffer.from(Body, all['body-encoding'] === 'base64' ? 'base64' : 'utf8');
  return {
    body: bodyBytes.toString(),
    bodyBytes,
    key: all['event-key'] ?? null,
    headers,
    contentType: all['content-type'],
    eventId: all['event-id'],
    deduplicationId: Attributes?.MessageDeduplicationId,
  };
}
