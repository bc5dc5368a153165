import { randomUUID } from 'node:crypto';
import { CreateTopicCommand, PublishBatchCommand, SNSClient } from '@aws-sdk/client-sns';
import { CreateQueueCommand, SendMessageBatchCommand, SQSClient } from '@aws-sdk/client-sqs';
import { type Broker, chunked, timed } from './broker.ts';

const settingsOf = (endpoint: string) => ({
  endpoint,
  region: 'us-east-1',
  credentials: { accessKeyId: 'test', secretAccessKey: 'test' },
});
const requestsAtOnce = 10;

const attributesOf = (headers: Readonly<Record<string, string>>) =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, { DataType: 'String', StringValue: value }]),
  );

export const sqs: Broker = {
  name: 'sqs',
  service: 'sqs',
  client: '@aws-sdk/client-sqs',
  goal: 0.5,
  nextGoal: 0.8,
  share: 0.5,
  async createTopic(url) {
    const client = new SQSClient(settingsOf(url));
    const { QueueUrl = '' } = await client.send(new CreateQueueCommand({ QueueName: `bench-${randomUUID()}` }));
    client.destroy();
    return QueueUrl;
  },
  async createPublisher(url) {
    const { sqs } = await import(new URL('../../dist/publishers/sqs.js', import.meta.url).href);
    return sqs(settingsOf(url));
  },
  async publishAll(url, QueueUrl, events) {
    const client = new SQSClient(settingsOf(url));
    const tookMs = await timed(chunked(events, 10), requestsAtOnce, (chunk) =>
      client.send(
        new SendMessageBatchCommand({
          QueueUrl,
          Entries: chunk.map((event, index) => {
            const { body, headers } = event.toMessage();
            return { Id: String(index), MessageBody: body as string, MessageAttributes: attributesOf(headers) };
          }),
        }),
      ),
    );
    client.destroy();
    return tookMs;
  },
};

export const sns: Broker = {
  name: 'sns',
  service: 'sqs',
  client: '@aws-sdk/client-sns',
  goal: 0.5,
  nextGoal: 0.8,
  share: 0.5,
  async createTopic(url) {
    const client = new SNSClient(settingsOf(url));
    const { TopicArn = '' } = await client.send(new CreateTopicCommand({ Name: `bench-${randomUUID()}` }));
    client.destroy();
    return TopicArn;
  },
  async createPublisher(url) {
    const { sns } = await import(new URL('../../dist/publishers/sns.js', import.meta.url).href);
    return sns(settingsOf(url));
  },
  async publishAll(url, TopicArn, events) {
    const client = new SNSClient(settingsOf(url));
    const tookMs = await timed(chunked(events, 10), requestsAtOnce, (chunk) =>
      client.send(
        new PublishBatchCommand({
          TopicArn,
          PublishBatchRequestEntries: chunk.map((event, index) => {
            const { body, headers } = event.toMessage();
            return { Id: String(index), Message: body as string, MessageAttributes: attributesOf(headers) };
          }),
        }),
      ),
    );
    client.destroy();
    return tookMs;
  },
};
