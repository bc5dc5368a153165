import type { SNSClient, SNSClientConfig } from '@aws-sdk/client-sns';
import { checkConnection, clientConfiguration } from './aws/client.ts';
import { isFifo } from './aws/entry.ts';
import { AwsPublisher, type AwsService, type AwsSession, NoTarget } from './aws/publisher.ts';
import { importClient } from './import-client.ts';
import type { Publisher } from './publisher.ts';
import { readOptions } from './publisher-options.ts';

export interface SnsOptions {
  /** E.g. `eu-central-1`. Default: as the AWS SDK finds it (`AWS_REGION`, the shared configuration). */
  region?: string;
  /** Address of another server than AWS's, e.g. `http://localhost:4566`. Default: AWS. */
  endpoint?: string;
  /** Keys, or a function that provides them. Default: as the AWS SDK finds them (environment, role, profile). */
  credentials?: SNSClientConfig['credentials'];
  /** Everything goes to this SNS topic, whatever the route's topic. Default: the route's topic is the SNS topic. */
  topicArn?: string;
  /**
   * Put before topics that are not ARNs, e.g. `arn:aws:sns:eu-central-1:123456789012:`. Default none: the route has to give
   * ARNs.
   */
  topicArnPrefix?: string;
  /**
   * Promise that every topic is a FIFO one; an event for another is not sent. It is what the publisher declares to keep: FIFO
   * topics get their order and deduplication in any case. Default: whether `topicArn` is one, else `false`.
   */
  fifo?: boolean;
  /** Passed to the SDK's `SNSClient`: request handler (agents, TLS, proxies), logger and so on. */
  clientOptions?: SNSClientConfig;
  /** A client of yours, instead of the options of the connection. It is not closed. */
  client?: SNSClient;
  /**
   * Bytes of one message, attributes included, and of one request. Default 262,144, AWS's limit for a topic whose
   * `MaximumMessageSize` is not set.
   */
  messageBytesMax?: number;
  /** Requests in flight in each of the up to 4 batches that the relay publishes in parallel. Default 8. */
  requestsAtOnceMax?: number;
}

/**
 * Publishes to SNS, standard and FIFO topics (`….fifo`), in requests of up to 10 messages. FIFO topics get the key as
 * message group and a deduplication id that tells targets and replays of an event apart.
 *
 * @example
 * import { sns } from 'postcommit/sns';
 *
 * const events = sns({
 *   region: 'eu-central-1',
 *   topicArn: 'arn:aws:sns:eu-central-1:123456789012:orders.fifo',
 * });
 */
export function sns(options: SnsOptions = {}): Publisher {
  const read = readOptions('sns', options, [
    'region',
    'endpoint',
    'credentials',
    'topicArn',
    'topicArnPrefix',
    'fifo',
    'clientOptions',
    'client',
    'messageBytesMax',
    'requestsAtOnceMax',
  ]);
  checkConnection(options, read, 'SNSClient');
  const onlyTarget = read.text('topicArn');
  if (onlyTarget !== undefined && !isArn(onlyTarget)) throw read.fail('topicArn must begin with arn:.');
  const prefix = read.text('topicArnPrefix');
  if (prefix !== undefined && !(isArn(prefix) && prefix.endsWith(':'))) {
    throw read.fail('topicArnPrefix must begin with arn: and end with a colon.');
  }
  const service: AwsService = {
    kind: 'sns',
    onlyTarget,
    fifo: read.flag('fifo', onlyTarget !== undefined && isFifo(onlyTarget)),
    messageBytesMax: read.whole('messageBytesMax', 262_144, 1, 1_048_576),
    requestsAtOnceMax: read.whole('requestsAtOnceMax', 8, 1, 100),
    open: () => open(options),
  };
  return new AwsPublisher(service);
}

async function open(options: SnsOptions): Promise<AwsSession> {
  const sdk = await importClient('@aws-sdk/client-sns', () => import('@aws-sdk/client-sns'));
  const { topicArn, topicArnPrefix } = options;
  const client = options.client ?? new sdk.SNSClient(clientConfiguration(options));
  return {
    async targetOf(topic) {
      const arn = topicArn ?? (isArn(topic) ? topic : topicArnPrefix && topicArnPrefix + topic);
      if (arn !== undefined) return arn;
      throw new NoTarget(
        `The topic ${topic.slice(0, 200)} is not an ARN: give ARNs in the route, or set topicArnPrefix.`,
      );
    },
    forget() {},
    send(target, entries, abortSignal) {
      const PublishBatchRequestEntries = entries.map(({ body, attributes, groupId, deduplicationId }, index) => ({
        Id: String(index),
        Message: body,
        MessageAttributes: attributes,
        MessageGroupId: groupId,
        MessageDeduplicationId: deduplicationId,
      }));
      return client.send(new sdk.PublishBatchCommand({ TopicArn: target, PublishBatchRequestEntries }), {
        abortSignal,
      });
    },
    probe(abortSignal) {
      // A request to publish nothing asks for the right to publish and is refused, if for nothing else, for being empty.
      if (topicArn !== undefined) {
        const nothing = new sdk.PublishBatchCommand({ TopicArn: topicArn, PublishBatchRequestEntries: [] });
        return client.send(nothing, { abortSignal });
      }
      return client.send(new sdk.ListTopicsCommand({}), { abortSignal });
    },
    close() {
      if (options.client === undefined) client.destroy();
    },
  };
}

function isArn(text: string): boolean {
  return text.startsWith('arn:');
}
