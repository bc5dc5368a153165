import type { SQSClient, SQSClientConfig } from '@aws-sdk/client-sqs';
import { checkConnection, clientConfiguration, isAwsUrl } from './aws/client.ts';
import { isFifo } from './aws/entry.ts';
import { AwsPublisher, type AwsService, type AwsSession, NoTarget } from './aws/publisher.ts';
import { importClient } from './import-client.ts';
import type { Publisher } from './publisher.ts';
import { readOptions } from './publisher-options.ts';

export type { SqsCalls, SqsConsumerOptions, SqsIncoming } from '../consumers/sqs.ts';
export { consumeSqs } from '../consumers/sqs.ts';

export interface SqsOptions {
  /** E.g. `eu-central-1`. Default: as the AWS SDK finds it (`AWS_REGION`, the shared configuration). */
  region?: string;
  /** Address of another server than AWS's, e.g. `http://localhost:4566`. Default: AWS. */
  endpoint?: string;
  /** Keys, or a function that provides them. Default: as the AWS SDK finds them (environment, role, profile). */
  credentials?: SQSClientConfig['credentials'];
  /**
   * Everything goes to this queue, whatever the topic. Default: the topic is the queue, by its URL or its name; names are
   * looked up once (`sqs:GetQueueUrl`).
   */
  queueUrl?: string;
  /**
   * Promise that every queue is a FIFO one; an event for another is not sent. It is what the publisher declares to keep: FIFO
   * queues get their order and deduplication in any case. Default: whether `queueUrl` is one, else `false`.
   */
  fifo?: boolean;
  /** Passed to the SDK's `SQSClient`: request handler (agents, TLS, proxies), logger and so on. */
  clientOptions?: SQSClientConfig;
  /** A client of yours, instead of the options of the connection. It is not closed. */
  client?: SQSClient;
  /** Bytes of one message, attributes included, and of one request. Default 1,048,576, AWS's own limit. */
  messageBytesMax?: number;
  /** Requests in flight in each of the up to 4 batches that the relay publishes in parallel. Default 8. */
  requestsAtOnceMax?: number;
}

const queueUrlsMax = 1_000;

/**
 * Publishes to SQS, standard and FIFO queues (`….fifo`), in requests of up to 10 messages. FIFO queues get the key as
 * message group and a deduplication id that tells targets and replays of an event apart.
 *
 * @example
 * import { sqs } from 'postcommit/sqs';
 *
 * const orders = sqs({
 *   region: 'eu-central-1',
 *   queueUrl: 'https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo',
 * });
 */
export function sqs(options: SqsOptions = {}): Publisher {
  const read = readOptions('sqs', options, [
    'region',
    'endpoint',
    'credentials',
    'queueUrl',
    'fifo',
    'clientOptions',
    'client',
    'messageBytesMax',
    'requestsAtOnceMax',
  ]);
  checkConnection(options, read, 'SQSClient');
  const onlyTarget = read.text('queueUrl');
  if (onlyTarget !== undefined && !isAwsUrl(onlyTarget)) {
    throw read.fail('queueUrl must be an http or https URL, without user and password.');
  }
  const service: AwsService = {
    kind: 'sqs',
    onlyTarget,
    fifo: read.flag('fifo', onlyTarget !== undefined && isFifo(onlyTarget)),
    messageBytesMax: read.whole('messageBytesMax', 1_048_576, 1, 1_048_576),
    requestsAtOnceMax: read.whole('requestsAtOnceMax', 8, 1, 100),
    open: () => open(options),
  };
  return new AwsPublisher(service);
}

async function open(options: SqsOptions): Promise<AwsSession> {
  const sdk = await importClient('@aws-sdk/client-sqs', () => import('@aws-sdk/client-sqs'));
  const { queueUrl } = options;
  const client = options.client ?? new sdk.SQSClient(clientConfiguration(options));
  const lookUp = async (name: string, abortSignal: AbortSignal) => {
    const { QueueUrl } = await client.send(new sdk.GetQueueUrlCommand({ QueueName: name }), { abortSignal });
    if (!QueueUrl) throw new Error(`AWS gave no URL for the queue ${name}.`);
    return QueueUrl;
  };
  const urls = new Map<string, string>();
  return {
    async targetOf(topic, signal) {
      if (queueUrl !== undefined) return queueUrl;
      if (isAwsUrl(topic)) return topic;
      // Without the text: it may hold a password.
      if (/^https?:/i.test(topic)) throw new NoTarget('The topic is not the URL of a queue.');
      const url = urls.get(topic) ?? (await lookUp(topic, signal));
      if (urls.size >= queueUrlsMax) urls.clear();
      urls.set(topic, url);
      return url;
    },
    forget(target) {
      for (const [name, url] of urls) if (url === target) urls.delete(name);
    },
    send(target, entries, abortSignal) {
      const Entries = entries.map(({ body, attributes, groupId, deduplicationId }, index) => ({
        Id: String(index),
        MessageBody: body,
        MessageAttributes: attributes,
        MessageGroupId: groupId,
        MessageDeduplicationId: deduplicationId,
      }));
      return client.send(new sdk.SendMessageBatchCommand({ QueueUrl: target, Entries }), { abortSignal });
    },
    probe(abortSignal) {
      // A request to send nothing asks for the right to send and is refused, if for nothing else, for being empty.
      if (queueUrl !== undefined) {
        return client.send(new sdk.SendMessageBatchCommand({ QueueUrl: queueUrl, Entries: [] }), { abortSignal });
      }
      return client.send(new sdk.ListQueuesCommand({ MaxResults: 1 }), { abortSignal });
    },
    close() {
      if (options.client === undefined) client.destroy();
    },
  };
}
