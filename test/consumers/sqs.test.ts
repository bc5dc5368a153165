import { randomUUID } from 'node:crypto';
import { type MessageAttributeValue, SQS } from '@aws-sdk/client-sqs';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { Reject } from '../../src/index.ts';
import { consumeSqs } from '../../src/publishers/sqs.ts';
import { QueueConsumer, testAccess } from '../publishers/aws-queue.ts';
import { fileService } from '../support/services.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { deferred, until, within } from '../support/wait.ts';
import { type ConsumerScene, envelopeOf, silent, type TestMessage, testConsumer } from './consumer-suite.ts';

const server = fileService('sqs');
let client: SQS;
let reader: QueueConsumer;
beforeAll(() => {
  client = new SQS({ ...testAccess, endpoint: server.url });
  reader = new QueueConsumer(server.url);
});
afterAll(() => {
  client?.destroy();
  reader?.close();
});

async function publishTo(queueUrl: string, messages: readonly TestMessage[]): Promise<void> {
  for (const { body, headers, key } of messages) {
    await client.sendMessage({
      QueueUrl: queueUrl,
      MessageBody: body as string,
      MessageAttributes: Object.fromEntries(
        Object.entries(headers).map(([name, StringValue]) => [name, { DataType: 'String', StringValue }]),
      ),
      MessageGroupId: key ?? 'none',
      MessageDeduplicationId: randomUUID(),
    });
  }
}

/** Messages that the queue has, delivered or not. */
async function unsettledIn(queueUrl: string): Promise<number> {
  const names = ['ApproximateNumberOfMessages', 'ApproximateNumberOfMessagesNotVisible'] as const;
  const { Attributes = {} } = await client.getQueueAttributes({ QueueUrl: queueUrl, AttributeNames: [...names] });
  return names.reduce((sum, name) => sum + Number(Attributes[name]), 0);
}

async function createScene(): Promise<ConsumerScene> {
  const [queueUrl, dead] = [await reader.createQueue('fifo'), await reader.createQueue('fifo')];
  return {
    consumer: (options) =>
      consumeSqs({
        ...options,
        client,
        queueUrl,
        deadLetterQueueUrl: dead,
        waitSeconds: 1,
        // What is not deleted, nor handed back, does not come again during a test.
        visibilitySeconds: 120,
      }),
    publish: (messages) => publishTo(queueUrl, messages),
    unsettled: () => unsettledIn(queueUrl),
    async deadLetters(count) {
      const letters = await reader.read(dead, count);
      return letters.map(({ body, headers }) => ({ body, reason: headers['dead-letter-reason'] }));
    },
  };
}

testConsumer('SQS', createScene);

describe('the consumer of SQS', () => {
  test('without a dead-letter queue of its own leaves what fails to the redrive policy, and no message passes it', async () => {
    const [queueUrl, dead] = [await reader.createQueue('fifo'), await reader.createQueue('fifo')];
    const redrive = { deadLetterTargetArn: await reader.arnOf(dead), maxReceiveCount: 2 };
    await client.setQueueAttributes({ QueueUrl: queueUrl, Attributes: { RedrivePolicy: JSON.stringify(redrive) } });
    const calls: number[] = [];
    const consumer = consumeSqs({
      client,
      queueUrl,
      waitSeconds: 1,
      logger: silent,
      retry: { attemptsMax: 1 },
      handle(event) {
        const { n } = event.payload as { n: number };
        calls.push(n);
        if (n === 0) throw new Error('out of paper');
      },
    });
    onTestFinished(() => consumer.stop());
    await publishTo(queueUrl, [envelopeOf('a', 0)]);
    await consumer.start();
    await until(() => calls.length === 1, { what: 'the first delivery has failed' });
    await publishTo(queueUrl, [envelopeOf('a', 1)]);
    await until(() => consumer.stats().processed === 1, { what: 'the next one is processed', timeoutMs: 30_000 });
    expect(calls).toEqual([0, 0, 1]);
    expect(consumer.stats()).toMatchObject({ failed: 2, released: 2, deadLettered: 0 });
    expect(await reader.read(dead, 1)).toHaveLength(1);
  });

  test('deletes a message that is processed while the deletion of another one ends', async () => {
    const queueUrl = await reader.createQueue('standard');
    // The second handler ends so many turns after SQS has answered to the deletion of the first message.
    for (let turns = 0; turns < 12; turns++) {
      const deleted = deferred();
      const deleteMessageBatch: SQS['deleteMessageBatch'] = async (input: never) => {
        const result = await client.deleteMessageBatch(input);
        deleted.resolve();
        return result;
      };
      const consumer = consumeSqs({
        client: Object.assign(Object.create(client) as SQS, { deleteMessageBatch }),
        queueUrl,
        waitSeconds: 0,
        logger: silent,
        async handle(event) {
          if ((event.payload as { n: number }).n === 0) return;
          await deleted.promise;
          for (let turn = 0; turn < turns; turn++) await Promise.resolve();
        },
      });
      onTestFinished(() => consumer.stop());
      for (const n of [0, 1]) {
        await client.sendMessage({ QueueUrl: queueUrl, MessageBody: String(envelopeOf(`k${n}`, n).body) });
      }
      await consumer.start();
      const isEmpty = async () => (await unsettledIn(queueUrl)) === 0;
      await until(isEmpty, { what: `both are deleted, after ${turns} turns`, timeoutMs: 5_000 });
      await consumer.stop();
    }
  });

  test('keeps a message invisible while it works longer than the visibility timeout', async () => {
    const queueUrl = await reader.createQueue('standard');
    let calls = 0;
    const consumer = consumeSqs({
      client,
      queueUrl,
      waitSeconds: 1,
      logger: silent,
      visibilitySeconds: 3,
      async handle() {
        calls++;
        await new Promise((resolve) => setTimeout(resolve, 4_500));
      },
    });
    onTestFinished(() => consumer.stop());
    await consumer.start();
    await client.sendMessage({ QueueUrl: queueUrl, MessageBody: String(envelopeOf('a', 0).body) });
    await until(() => consumer.stats().processed === 1, { what: 'it is processed', timeoutMs: 20_000 });
    await consumer.stop();
    expect([calls, await reader.receive(queueUrl)]).toEqual([1, []]);
  });

  /** A client whose requests reach SQS until the proxy stalls. */
  async function createProxiedClient() {
    const { hostname, port } = new URL(server.url);
    const proxy = await startTcpProxy({ host: hostname, port: Number(port) });
    const proxied = new SQS({ ...testAccess, endpoint: proxy.url(server.url) });
    onTestFinished(async () => {
      proxied.destroy();
      await proxy.close();
    });
    return { proxy, proxied };
  }

  test.each(['deleteMessageBatch', 'changeMessageVisibilityBatch', 'sendMessage'] as const)(
    'goes on when one %s is never answered',
    async (call) => {
      const { proxy, proxied } = await createProxiedClient();
      proxy.stall();
      let calls = 0;
      const stallOnce = (...given: unknown[]) => {
        const through = calls++ === 0 ? proxied : client;
        return (through[call] as (...all: unknown[]) => unknown)(...given);
      };
      const [queueUrl, dead] = [await reader.createQueue('standard'), await reader.createQueue('standard')];
      let isFailing = call !== 'deleteMessageBatch';
      const consumer = consumeSqs({
        client: Object.assign(Object.create(client) as SQS, { [call]: stallOnce }),
        queueUrl,
        ...(call === 'sendMessage' && { deadLetterQueueUrl: dead }),
        waitSeconds: 1,
        visibilitySeconds: 3,
        requestTimeoutMs: 1_000,
        retry: { attemptsMax: 1 },
        logger: silent,
        handle() {
          if (!isFailing) return;
          isFailing = false;
          throw new Error('out of paper');
        },
      });
      onTestFinished(() => consumer.stop());
      await consumer.start();
      await client.sendMessage({ QueueUrl: queueUrl, MessageBody: String(envelopeOf('a', 0).body) });
      await until(() => calls > 0, { what: 'the request is sent' });
      await client.sendMessage({ QueueUrl: queueUrl, MessageBody: String(envelopeOf('b', 1).body) });
      const isEmpty = async () => (await unsettledIn(queueUrl)) === 0;
      await until(isEmpty, { what: 'all are settled', timeoutMs: 15_000 });
      await within(consumer.stop(), { what: 'it has stopped' });
      if (call === 'sendMessage') expect(await reader.read(dead, 1)).toHaveLength(1);
    },
  );

  test('stop ends when SQS does not answer any more', async () => {
    const { proxy, proxied } = await createProxiedClient();
    const queueUrl = await reader.createQueue('standard');
    const [started, finish] = [deferred(), deferred()];
    const consumer = consumeSqs({
      client: proxied,
      queueUrl,
      waitSeconds: 0,
      requestTimeoutMs: 500,
      logger: silent,
      async handle() {
        started.resolve();
        await finish.promise;
      },
    });
    for (let n = 0; n < 30; n++) {
      await client.sendMessage({ QueueUrl: queueUrl, MessageBody: String(envelopeOf(`k${n}`, n).body) });
    }
    await consumer.start();
    await within(started.promise, { what: 'some are in flight' });
    proxy.stall();
    const stopped = consumer.stop();
    finish.resolve();
    await within(stopped, { what: 'it has stopped', timeoutMs: 5_000 });
    expect(consumer.stats()).toMatchObject({ state: 'idle', inFlight: 0, waiting: 0 });
  });

  /** The dead letter of a message that cannot be read, with these attributes. */
  async function deadLetterOf(
    body: string,
    attributes: Record<string, MessageAttributeValue>,
    MaximumMessageSize = 1_024,
  ) {
    const [queueUrl, dead] = [await reader.createQueue('standard'), await reader.createQueue('standard')];
    for (const QueueUrl of [queueUrl, dead]) {
      await client.setQueueAttributes({ QueueUrl, Attributes: { MaximumMessageSize: String(MaximumMessageSize) } });
    }
    const consumer = consumeSqs({
      client,
      queueUrl,
      deadLetterQueueUrl: dead,
      waitSeconds: 0,
      logger: silent,
      handle() {
        throw new Reject('no \u0001 paper');
      },
    });
    onTestFinished(() => consumer.stop());
    await client.sendMessage({ QueueUrl: queueUrl, MessageBody: body, MessageAttributes: attributes });
    await consumer.start();
    await until(() => consumer.stats().deadLettered === 1, { what: 'it is dead-lettered' });
    const [letter] = await reader.receive(dead);
    return letter;
  }

  test('the same event from two queues is two dead letters', async () => {
    const dead = await reader.createQueue('fifo');
    const { body, headers } = envelopeOf('a', 0);
    const MessageDeduplicationId = randomUUID();
    for (const queueUrl of [await reader.createQueue('fifo'), await reader.createQueue('fifo')]) {
      const consumer = consumeSqs({
        client,
        queueUrl,
        deadLetterQueueUrl: dead,
        waitSeconds: 1,
        logger: silent,
        handle() {
          throw new Reject('no such customer');
        },
      });
      onTestFinished(() => consumer.stop());
      await consumer.start();
      const MessageAttributes = { 'event-id': { DataType: 'String', StringValue: headers['event-id'] as string } };
      const input = { QueueUrl: queueUrl, MessageBody: body as string, MessageGroupId: 'a', MessageAttributes };
      await client.sendMessage({ ...input, MessageDeduplicationId });
      await until(() => consumer.stats().deadLettered === 1, { what: 'it is dead-lettered', timeoutMs: 20_000 });
    }
    expect(await unsettledIn(dead)).toBe(2);
  });

  test('a dead letter has the attributes of its message, whatever their types', async () => {
    const attributes = {
      bytes: { DataType: 'Binary', BinaryValue: new Uint8Array([0, 255, 7]) },
      count: { DataType: 'Number', StringValue: '3' },
      custom: { DataType: 'String.custom', StringValue: 'x' },
    };
    const letter = await deadLetterOf(String(envelopeOf('a', 0).body), attributes);
    expect(letter?.MessageAttributes).toMatchObject(attributes);
    expect(letter?.MessageAttributes?.['dead-letter-reason']?.StringValue).toBe('Reject: no \uFFFD paper');
  });

  test('a message as large as the queue allows becomes a dead letter without the reason', async () => {
    const attributes = { a: { DataType: 'String', StringValue: 'b' } };
    const letter = await deadLetterOf('x'.repeat(1_024 - 8), attributes);
    expect([letter?.Body?.length, Object.keys(letter?.MessageAttributes ?? {})]).toEqual([1_016, ['a']]);
  });
});
