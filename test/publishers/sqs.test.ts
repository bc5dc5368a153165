import { randomUUID } from 'node:crypto';
import { CreateQueueCommand, DeleteQueueCommand, ListQueuesCommand, SQSClient } from '@aws-sdk/client-sqs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type SqsOptions, sqs } from '../../src/publishers/sqs.ts';
import { QueueConsumer, testAccess } from './aws-queue.ts';
import { AwsScene, message, soon } from './aws-scene.ts';

const aws = new AwsScene(sqs);
let consumer: QueueConsumer;
let admin: SQSClient;
beforeAll(() => {
  consumer = new QueueConsumer(aws.server.url);
  admin = new SQSClient({ ...testAccess, endpoint: aws.server.url });
});
afterAll(() => {
  consumer?.close();
  admin?.destroy();
});

async function attributesOf(queueUrl: string): Promise<Record<string, string>> {
  const [first] = await consumer.receive(queueUrl);
  const entries = Object.entries(first?.MessageAttributes ?? {});
  return Object.fromEntries(entries.map(([name, { StringValue = '' }]) => [name, StringValue]));
}

describe('a message in a FIFO queue', () => {
  it('has the key as its group, and its deduplication id', async () => {
    const queueUrl = await consumer.createQueue('fifo');
    const odd = 'Bestellung:ü 1';
    const batch = [message(queueUrl), message(queueUrl, { key: null }), message(queueUrl, { key: odd })];
    await aws.publisher.publish(batch, soon());
    const received = (await consumer.receive(queueUrl)).map(({ Attributes }) => Attributes ?? {});
    expect(received.map((it) => it.MessageDeduplicationId)).toEqual(
      batch.map(({ deduplicationId }) => deduplicationId),
    );
    const groups = received.map((it) => it.MessageGroupId);
    expect(groups).toEqual(['order:1', batch[1]?.eventId, expect.stringMatching(/^[0-9a-f]{64}$/)]);
  });

  it('is dropped by SQS when it comes a second time', async () => {
    const queueUrl = await consumer.createQueue('fifo');
    const [first, second] = [message(queueUrl), message(queueUrl)];
    for (const each of [first, first, second]) {
      expect(await aws.publisher.publish([each], soon())).toEqual([{ kind: 'delivered' }]);
    }
    const ids = (await consumer.read(queueUrl, 2)).map(({ eventId }) => eventId);
    expect(ids).toEqual([first.eventId, second.eventId]);
  });

  it('is not passed by one of its key when it fails', async () => {
    const queueUrl = await consumer.createQueue('fifo');
    const batch = [message(queueUrl), message(queueUrl), message(queueUrl, { key: 'order:2' })];
    aws.faults.fault = ({ action, body }) => {
      if (action !== 'SendMessageBatch') return undefined;
      const { Entries } = JSON.parse(body) as { Entries: { Id: string; MessageDeduplicationId: string }[] };
      const failing = Entries.find((entry) => entry.MessageDeduplicationId === batch[0]?.deduplicationId);
      expect(Entries.length).toBe(2);
      const Failed = [{ Id: failing?.Id, Code: 'KmsDisabled', Message: 'the key is off', SenderFault: true }];
      return { status: 200, body: JSON.stringify({ Failed, Successful: [] }) };
    };
    expect(await aws.publisher.publish(batch, soon())).toEqual([
      { kind: 'failed', reason: 'KmsDisabled: the key is off' },
      { kind: 'released', reason: expect.stringMatching(/earlier event of the same key/) },
      { kind: 'failed', reason: 'AWS returned no result for the message.' },
    ]);
  });
});

describe('attributes', () => {
  it('hold the facts of the event and its headers', async () => {
    const queueUrl = await consumer.createQueue('standard');
    const sent = message(queueUrl, { headers: { 'event-type': 'test.happened', traceparent: '00-1-2-01' } });
    await aws.publisher.publish([sent], soon());
    expect(await attributesOf(queueUrl)).toEqual({
      'event-id': sent.eventId,
      'event-type': 'test.happened',
      'event-key': 'order:1',
      'content-type': 'application/json',
      traceparent: '00-1-2-01',
    });
  });

  it('have the traceparent by name, also when all facts of an event are there', async () => {
    const queueUrl = await consumer.createQueue('standard');
    const names = ['schema-version', 'occurred-at', 'aggregate-type', 'aggregate-id', 'event-seq', 'trace-id'];
    const facts = Object.fromEntries(names.map((name) => [name, `the ${name}`]));
    const sent = message(queueUrl, { headers: { ...facts, traceparent: '00-1-2-01' } });
    await aws.publisher.publish([sent], soon());
    const attributes = await attributesOf(queueUrl);
    expect(attributes).toMatchObject({ 'aggregate-id': 'the aggregate-id', traceparent: '00-1-2-01' });
    expect(JSON.parse(attributes['more-headers'] ?? '')).toMatchObject({ 'event-seq': 'the event-seq' });
  });

  it('are ten at most, and hold no name or value that SQS refuses: the other headers are in one as JSON', async () => {
    const queueUrl = await consumer.createQueue('standard');
    const many = Object.fromEntries(Array.from({ length: 12 }, (_, n) => [`x-${n}`, `value ${n}`]));
    const odd = { 'with space': 'a', empty: '', 'AWS.reserved': 'b', control: 'a\u0000b', 'event-id': 'another' };
    const sent = message(queueUrl, { headers: { ...odd, ...many } });
    expect(await aws.publisher.publish([sent], soon())).toEqual([{ kind: 'delivered' }]);
    const attributes = await attributesOf(queueUrl);
    expect(Object.keys(attributes)).toHaveLength(10);
    expect(attributes).toMatchObject({ 'event-id': sent.eventId, 'x-0': 'value 0' });
    const { 'event-id': id, 'event-type': _type, 'event-key': _key, 'content-type': _content, ...rest } = attributes;
    const { 'more-headers': more = '', ...byName } = rest;
    expect(more).not.toMatch(/\0/);
    expect({ ...byName, ...JSON.parse(more) }).toEqual(sent.headers);
    expect(id).toBe(sent.eventId);
  });

  it('tell that a body of bytes is base64', async () => {
    const queueUrl = await consumer.createQueue('standard');
    await aws.publisher.publish([message(queueUrl, { body: Uint8Array.of(0, 255) })], soon());
    const [received] = await consumer.receive(queueUrl);
    expect(received?.Body).toBe('AP8=');
    expect(received?.MessageAttributes?.['body-encoding']?.StringValue).toBe('base64');
  });
});

describe('where a message goes', () => {
  it('is the queue of that name, which is looked up once', async () => {
    const name = `by-name-${randomUUID()}`;
    const queueUrl = await consumer.createQueue('standard', name);
    aws.faults.actions.length = 0;
    for (let n = 0; n < 3; n++)
      expect(await aws.publisher.publish([message(name)], soon())).toEqual([{ kind: 'delivered' }]);
    expect(aws.faults.actions.filter((action) => action === 'GetQueueUrl')).toHaveLength(1);
    expect(await consumer.read(queueUrl, 3)).toHaveLength(3);
  });

  it('is the one queue that was given, whatever the topic', async () => {
    const queueUrl = await consumer.createQueue('fifo');
    aws.open({ queueUrl });
    expect(aws.publisher.capabilities).toMatchObject({ ordered: true, deduplicates: true });
    await aws.publisher.connect(soon());
    await aws.publisher.health(soon());
    expect(await aws.publisher.publish([message('order.created')], soon())).toEqual([{ kind: 'delivered' }]);
    expect(await consumer.read(queueUrl, 1)).toHaveLength(1);
  });

  it('may not exist: that fails its own events, with a clear reason', async () => {
    const known = await consumer.createQueue('standard');
    const unknown = known.replace('queue-', 'gone-');
    const outcomes = await aws.publisher.publish(
      [message('no-such-queue'), message(unknown, { key: 'order:2' }), message(known, { key: 'order:3' })],
      soon(),
    );
    expect(outcomes).toMatchObject([
      { kind: 'failed', reason: expect.stringMatching(/^no-such-queue: QueueDoesNotExist: The specified queue/) },
      { kind: 'failed', reason: expect.stringContaining(unknown) },
      { kind: 'delivered' },
    ]);
  });

  it('is asked for again when the queue of that name is gone', async () => {
    const name = `again-${randomUUID()}`;
    const QueueUrl = await consumer.createQueue('standard', name);
    await aws.publisher.publish([message(name)], soon());
    await admin.send(new DeleteQueueCommand({ QueueUrl }));
    expect(await aws.publisher.publish([message(name)], soon())).toMatchObject([{ kind: 'failed' }]);
    await consumer.createQueue('standard', name);
    aws.faults.actions.length = 0;
    expect(await aws.publisher.publish([message(name)], soon())).toEqual([{ kind: 'delivered' }]);
    expect(aws.faults.actions).toContain('GetQueueUrl');
  });

  it('must be FIFO where that was promised', async () => {
    aws.open({ fifo: true });
    const queueUrl = await consumer.createQueue('standard');
    expect(await aws.publisher.publish([message(queueUrl)], soon())).toMatchObject([
      { kind: 'failed', reason: expect.stringMatching(/is not FIFO/) },
    ]);
  });
});

describe('requests', () => {
  it('are as full as SQS allows, in messages and in bytes', async () => {
    const queueUrl = await consumer.createQueue('standard');
    const requestsFor = async (count: number, bytes: number) => {
      const body = 'x'.repeat(bytes);
      aws.faults.actions.length = 0;
      const batch = Array.from({ length: count }, (_, n) => message(queueUrl, { key: `order:${n}`, body }));
      const outcomes = await aws.publisher.publish(batch, soon());
      expect(outcomes.every(({ kind }) => kind === 'delivered')).toBe(true);
      return aws.faults.actions.length;
    };
    expect(await requestsFor(25, 10)).toBe(3);
    expect(await requestsFor(10, 200_000)).toBe(2);
    expect(await requestsFor(3, 700_000)).toBe(3);
  });
});

// A server from an environment variable is not ours to stop.
describe.runIf(!aws.server.given)('a server that crashes', () => {
  it('is unavailable at once, and found again', async () => {
    aws.open({ endpoint: aws.server.url });
    const queueUrl = await consumer.createQueue('standard');
    expect(await aws.publisher.publish([message(queueUrl)], soon())).toEqual([{ kind: 'delivered' }]);
    await aws.server.own.kill();
    const [down] = await aws.publisher.publish([message(queueUrl)], soon());
    await aws.server.own.start();
    expect(down).toMatchObject({ kind: 'unavailable', reason: expect.stringMatching(/ECONNREFUSED/) });
    await admin.send(new CreateQueueCommand({ QueueName: queueUrl.split('/').at(-1) }));
    expect(await aws.publisher.publish([message(queueUrl)], soon())).toEqual([{ kind: 'delivered' }]);
  });
});

describe('options', () => {
  it('a client that is given is left alone', async () => {
    const publisher = sqs({ client: admin });
    await publisher.connect(soon());
    await publisher.close();
    await admin.send(new ListQueuesCommand({}));
  });

  it.each([
    [{ queueURL: 'x' }, /There is no option queueURL/],
    [{ queueUrl: 'orders' }, /queueUrl must be an http or https URL/],
    [{ client: {} }, /client must be an SQSClient/],
    [{ client: {}, region: 'eu-central-1' }, /client and region exclude each other/],
    [{ messageBytesMax: 2_000_000 }, /messageBytesMax must be a whole number from 1 to 1048576/],
    [{ fifo: 'yes' }, /fifo must be true or false/],
  ])('%j is refused', (options, message) => {
    expect(() => sqs(options as SqsOptions)).toThrow(
      expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringMatching(message) }),
    );
  });
});
