import { ListTopicsCommand, SNSClient } from '@aws-sdk/client-sns';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type SnsOptions, sns } from '../../src/publishers/sns.ts';
import { snsError } from './aws-faults.ts';
import { testAccess } from './aws-queue.ts';
import { AwsScene, message, soon } from './aws-scene.ts';
import { TopicConsumer } from './aws-topic.ts';

const aws = new AwsScene(sns);
let consumer: TopicConsumer;
beforeAll(() => {
  consumer = new TopicConsumer(aws.server.url);
});
afterAll(() => consumer?.close());

describe('a message', () => {
  it('in a FIFO topic has the key as its group, and its deduplication id', async () => {
    const topicArn = await consumer.createTopic('fifo');
    const batch = [message(topicArn), message(topicArn, { key: null })];
    await aws.publisher.publish(batch, soon());
    const received = (await consumer.queues.receive(consumer.queueOf(topicArn))).map(({ Attributes }) => Attributes);
    expect(received).toMatchObject([
      { MessageGroupId: 'order:1', MessageDeduplicationId: batch[0]?.deduplicationId },
      { MessageGroupId: batch[1]?.eventId, MessageDeduplicationId: batch[1]?.deduplicationId },
    ]);
  });

  it('has ten attributes at most, which is what a queue with raw delivery takes', async () => {
    const topicArn = await consumer.createTopic('standard');
    const headers = Object.fromEntries(Array.from({ length: 15 }, (_, n) => [`x-${n}`, `value ${n}`]));
    await aws.publisher.publish([message(topicArn, { headers })], soon());
    const [received] = await consumer.queues.receive(consumer.queueOf(topicArn));
    const attributes = received?.MessageAttributes ?? {};
    expect(Object.keys(attributes)).toHaveLength(10);
    expect(attributes['x-0']?.StringValue).toBe('value 0');
    expect(JSON.parse(attributes['more-headers']?.StringValue ?? '')).toMatchObject({ 'x-14': 'value 14' });
  });

  it('of bytes is base64, and says so', async () => {
    const topicArn = await consumer.createTopic('standard');
    await aws.publisher.publish([message(topicArn, { body: Uint8Array.of(0, 255) })], soon());
    const [received] = await consumer.queues.receive(consumer.queueOf(topicArn));
    expect([received?.Body, received?.MessageAttributes?.['body-encoding']?.StringValue]).toEqual(['AP8=', 'base64']);
  });

  it('that is empty is rejected, which SNS would not even mention', async () => {
    const topicArn = await consumer.createTopic('standard');
    expect(await aws.publisher.publish([message(topicArn, { body: '' })], soon())).toMatchObject([
      { kind: 'rejected' },
    ]);
  });
});

describe('where a message goes', () => {
  it('is the topic of that name behind a prefix', async () => {
    const topicArn = await consumer.createTopic('standard');
    const name = topicArn.split(':').at(-1) ?? '';
    expect(await aws.publisher.publish([message(name)], soon())).toMatchObject([
      { kind: 'failed', reason: `The topic ${name} is not an ARN: give ARNs in the route, or set topicArnPrefix.` },
    ]);
    aws.open({ topicArnPrefix: topicArn.slice(0, -name.length) });
    expect(await aws.publisher.publish([message(name)], soon())).toEqual([{ kind: 'delivered' }]);
    expect(await consumer.read(topicArn, 1)).toHaveLength(1);
  });

  it('is the one topic that was given, whatever the route says', async () => {
    const topicArn = await consumer.createTopic('fifo');
    aws.open({ topicArn });
    expect(aws.publisher.capabilities).toMatchObject({ ordered: true, deduplicates: true });
    await aws.publisher.connect(soon());
    await aws.publisher.health(soon());
    expect(await aws.publisher.publish([message('order.created')], soon())).toEqual([{ kind: 'delivered' }]);
    expect(await consumer.read(topicArn, 1)).toHaveLength(1);
  });

  it('may not exist: that fails its own events, with a clear reason', async () => {
    const known = await consumer.createTopic('standard');
    const unknown = 'arn:aws:sns:us-east-1:000000000000:no-such-topic';
    const outcomes = await aws.publisher.publish([message(unknown), message(known, { key: 'order:2' })], soon());
    expect(outcomes).toMatchObject([
      { kind: 'failed', reason: expect.stringMatching(/no-such-topic: NotFound: Topic does not exist/) },
      { kind: 'delivered' },
    ]);
  });
});

describe('what AWS answers', () => {
  it.each([
    [400, 'Throttled', 'unavailable'],
    [500, 'InternalError', 'unavailable'],
    [403, 'InvalidClientTokenId', 'unavailable'],
    [403, 'AuthorizationError', 'failed'],
    [400, 'KMSDisabled', 'failed'],
    [400, 'InvalidParameter', 'failed'],
    [400, 'BatchRequestTooLong', 'rejected'],
  ])('%i %s is %s', async (status, code, kind) => {
    const topicArn = await consumer.createTopic('standard');
    aws.faults.fault = ({ action }) => (action === 'PublishBatch' ? snsError(status, code) : undefined);
    const [outcome] = await aws.publisher.publish([message(topicArn)], soon());
    expect(outcome).toMatchObject({ kind, reason: expect.stringContaining(code) });
    aws.faults.fault = undefined;
    expect(await aws.publisher.publish([message(topicArn)], soon())).toEqual([{ kind: 'delivered' }]);
  });

  it('a message over the limit of its topic is rejected alone', async () => {
    aws.open({ messageBytesMax: 1_048_576 });
    const topicArn = await consumer.createTopic('standard');
    const batch = [message(topicArn, { body: 'x'.repeat(300_000) }), message(topicArn, { key: 'order:2' })];
    expect(await aws.publisher.publish(batch, soon())).toMatchObject([
      { kind: 'rejected', reason: 'InvalidParameter: Message too long' },
      { kind: 'delivered' },
    ]);
  });

  it('wrong credentials are refused at connect, a missing right to list topics is not', async () => {
    aws.faults.fault = () => snsError(403, 'AuthorizationError', 'not you');
    await aws.publisher.connect(soon());
    aws.faults.fault = () => snsError(403, 'SignatureDoesNotMatch', 'wrong key');
    await expect(aws.publisher.connect(soon())).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DESTINATION_REFUSED',
      message: expect.stringMatching(/sns: SignatureDoesNotMatch: wrong key/),
    });
  });
});

describe('options', () => {
  it('a client that is given is left alone', async () => {
    const client = new SNSClient({ ...testAccess, endpoint: aws.server.url });
    const publisher = sns({ client });
    await publisher.connect(soon());
    await publisher.close();
    await client.send(new ListTopicsCommand({}));
    client.destroy();
  });

  it.each([
    [{ topicARN: 'x' }, /There is no option topicARN/],
    [{ topicArn: 'orders' }, /topicArn must begin with arn:/],
    [{ topicArnPrefix: 'arn:aws:sns:eu-central-1:123456789012' }, /end with a colon/],
    [{ client: {} }, /client must be an SNSClient/],
    [{ requestsAtOnceMax: 0 }, /requestsAtOnceMax must be a whole number from 1 to 100/],
  ])('%j is refused', (options, message) => {
    expect(() => sns(options as SnsOptions)).toThrow(
      expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringMatching(message) }),
    );
  });
});
