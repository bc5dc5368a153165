import { setImmediate as nextTurn } from 'node:timers/promises';
import { Kafka, logLevel, Partitioners } from 'kafkajs';
import { afterEach, describe, expect, it } from 'vitest';
import { partitionOfKey } from '../../src/publishers/kafka/partition.ts';
import { recordBytes } from '../../src/publishers/kafka/record.ts';
import { type KafkaOptions, kafka } from '../../src/publishers/kafka.ts';
import type { Message, Publisher, PublishOutcome } from '../../src/publishers/publisher.ts';
import { testMessage } from '../../src/testing/index.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';
import { startTwoBrokers } from './kafka-clients/two-brokers.ts';
import { kafkaReader } from './kafka-reader.ts';
import { testCertificate, testCertificateKey } from './webhook-certificate.ts';

const inOneLine = (pem: string) => pem.replaceAll('\n', '\\n');
const settings = {
  'auto.create.topics.enable': 'false',
  'listener.security.protocol.map': 'CLIENT:PLAINTEXT,SASL:SASL_SSL,CONTROLLER:PLAINTEXT',
  'listener.name.sasl.ssl.keystore.type': 'PEM',
  'listener.name.sasl.ssl.keystore.certificate.chain': inOneLine(testCertificate),
  'listener.name.sasl.ssl.keystore.key': inOneLine(testCertificateKey),
};
const server = fileService('kafka', { settings });
const reader = kafkaReader(() => server.url);
const opened: Publisher[] = [];

afterEach(async () => {
  await Promise.all(opened.splice(0).map((publisher) => publisher.close()));
});

async function connected(options: Partial<KafkaOptions> = {}): Promise<Publisher> {
  const publisher = kafka(options.producer ? options : { brokers: [server.url], ...options });
  opened.push(publisher);
  await publisher.connect(AbortSignal.timeout(20_000));
  return publisher;
}

const send = (publisher: Publisher, batch: readonly Message[], timeoutMs = 30_000) =>
  publisher.publish(batch, AbortSignal.timeout(timeoutMs));

const kinds = (outcomes: readonly PublishOutcome[]) => outcomes.map(({ kind }) => kind);

function reasonAt(outcomes: readonly PublishOutcome[], index: number): string {
  const outcome = outcomes[index];
  return outcome && outcome.kind !== 'delivered' ? outcome.reason : '';
}

/** `count` messages over `keys` keys, each of about a kilobyte. */
function messages(topic: string, count: number, keys: number): Message[] {
  return Array.from({ length: count }, (_, number) =>
    testMessage({ topic, key: `order:${number % keys}`, body: JSON.stringify({ number, padding: 'x'.repeat(1_000) }) }),
  );
}

/** The numbers that arrived, by key, in the order of their arrival. */
async function arrived(topic: string, count: number): Promise<Map<string, number[]>> {
  const byKey = new Map<string, number[]>();
  for (const { key, body } of await reader.read(topic, count)) {
    const numbers = byKey.get(key ?? '') ?? [];
    numbers.push((JSON.parse(body) as { number: number }).number);
    byKey.set(key ?? '', numbers);
  }
  return byKey;
}

const sorted = (numbers: number[]) => numbers.toSorted((a, b) => a - b);

/** Sends again what may be sent again, as the relay does, until all is settled. */
async function deliverAll(publisher: Publisher, batch: readonly Message[]): Promise<Map<Message, string>> {
  const rejected = new Map<Message, string>();
  let left = batch;
  for (let turn = 0; left.length > 0; turn++) {
    expect(turn).toBeLessThan(50);
    const outcomes = await send(publisher, left);
    for (const [index, message] of left.entries()) {
      if (outcomes[index]?.kind === 'rejected') rejected.set(message, reasonAt(outcomes, index));
    }
    left = left.filter((_, index) => !['delivered', 'rejected'].includes(outcomes[index]?.kind ?? ''));
  }
  return rejected;
}

describe('a record that is too large', () => {
  it('of 2 MB among 1,000 is rejected alone, and the others arrive in order, once', async () => {
    const publisher = await connected({ messageBytesMax: 4_000_000 });
    const topic = await reader.createTopic({}, 3);
    const batch = messages(topic, 1_000, 10);
    const guilty = { ...(batch[500] as Message), body: 'y'.repeat(2_000_000) };
    batch[500] = guilty;
    const rejected = await deliverAll(publisher, batch);
    expect([...rejected.keys()]).toEqual([guilty]);
    // Its own limit allows it: this is the broker's word.
    expect(rejected.get(guilty)).toMatch(
      /MESSAGE_TOO_LARGE: .*larger than the max message size the server will accept/,
    );
    const received = await arrived(topic, 999);
    expect([...received.values()].flat()).toHaveLength(999);
    for (const numbers of received.values()) expect(numbers).toEqual(sorted(numbers));
  });

  it('is found before it is sent where messageBytesMax says so', async () => {
    const publisher = await connected();
    const topic = await reader.createTopic();
    const batch = messages(topic, 9, 3);
    batch[4] = testMessage({ ...(batch[4] as Message), body: 'y'.repeat(1_048_576) });
    const outcomes = await send(publisher, batch);
    expect(kinds(outcomes)).toEqual([
      'delivered',
      'delivered',
      'delivered',
      'delivered',
      'rejected',
      'delivered',
      'delivered',
      'released',
      'delivered',
    ]);
    expect(reasonAt(outcomes, 4)).toMatch(/^MESSAGE_TOO_LARGE: the record has 10487\d\d bytes, .*1048588/);
  });

  it('of exactly the broker’s limit is taken, and one byte more is not', async () => {
    const publisher = await connected();
    const topic = await reader.createTopic();
    const fits = (body: string) => testMessage({ topic, key: 'k', body });
    const { eventId, contentType } = fits('');
    const headers = { 'event-id': eventId, 'content-type': contentType };
    const spare = 1_048_588 - recordBytes({ key: 'k', value: 'x'.repeat(1_048_000), headers });
    const largest = 'x'.repeat(1_048_000 + spare);
    expect(kinds(await send(publisher, [fits(largest)]))).toEqual(['delivered']);
    expect(kinds(await send(publisher, [fits(`${largest}x`)]))).toEqual(['rejected']);
    const lenient = await connected({ messageBytesMax: 2_000_000 });
    const outcomes = await send(lenient, [fits(`${largest}x`)]);
    expect(reasonAt(outcomes, 0)).toMatch(/larger than the max message size the server will accept/);
  });

  it('for its topic’s own, lower limit is the only one that fails; batches shrink to what the broker takes', async () => {
    const publisher = await connected();
    const topic = await reader.createTopic({ 'max.message.bytes': '20000' }, 2);
    const batch = messages(topic, 200, 5);
    const guilty = testMessage({ ...(batch[77] as Message), body: 'y'.repeat(30_000) });
    batch[77] = guilty;
    const outcomes = await send(publisher, batch);
    expect(outcomes[77]?.kind).toBe('rejected');
    const behind = batch.map((message, index) => index > 77 && message.key === guilty.key);
    for (const [index, { kind }] of outcomes.entries()) {
      if (index !== 77) expect(kind).toBe(behind[index] ? 'released' : 'delivered');
    }
    const left = batch.filter((_, index) => outcomes[index]?.kind === 'released');
    expect(kinds(await send(publisher, left))).toEqual(left.map(() => 'delivered'));
    const received = await arrived(topic, 199);
    expect([...received.values()].flat()).toHaveLength(199);
    for (const numbers of received.values()) expect(numbers).toEqual(sorted(numbers));
  });

  it('does not make the broker drop what is sent next to the partitions that were stored', async () => {
    const publisher = await connected({ messageBytesMax: 2_000_000, batchesInFlightMax: 1 });
    const topic = await reader.createTopic({}, 2);
    const keyIn = (wanted: number) => ['a', 'b', 'c', 'd', 'e'].find((key) => partitionOfKey(key, 2) === wanted) ?? '';
    const small = (number: number) => testMessage({ topic, key: keyIn(0), body: JSON.stringify({ number }) });
    const large = testMessage({ topic, key: keyIn(1), body: 'x'.repeat(1_500_000) });
    expect(kinds(await send(publisher, [small(0), large]))).toEqual(['delivered', 'rejected']);
    expect(kinds(await send(publisher, [small(1)]))).toEqual(['delivered']);
    expect((await arrived(topic, 2)).get(keyIn(0))).toEqual([0, 1]);
  });

  it('together with others is divided: 3 MB for one partition', async () => {
    const publisher = await connected();
    const topic = await reader.createTopic({}, 1);
    const batch = messages(topic, 3_000, 1);
    expect(new Set(kinds(await send(publisher, batch)))).toEqual(new Set(['delivered']));
    expect((await arrived(topic, 3_000)).get('order:0')).toEqual(batch.map((_, number) => number));
  });
});

describe('many records that the broker refuses', () => {
  it('take a bounded number of requests a call, and cost no other record an attempt', async () => {
    // Compacted, so that records without a key are invalid.
    const topic = await reader.createTopic({ 'cleanup.policy': 'compact' }, 1);
    let requests = 0;
    const cluster = await startTwoBrokers({
      broker: server.url,
      topic,
      partitionCount: 1,
      leaderOf: () => 1,
      onProduce: () => void requests++,
      onStored: () => {},
    });
    try {
      const publisher = await connected({ brokers: cluster.addresses });
      const good = messages(topic, 40, 40);
      const invalid = Array.from({ length: 400 }, () => testMessage({ topic }));
      let left = invalid.flatMap((message, index) =>
        index % 10 === 0 ? [message, good[index / 10] as Message] : message,
      );
      let rejected = 0;
      for (let calls = 0; left.length > 0; calls++) {
        expect(calls).toBeLessThan(50);
        requests = 0;
        const outcomes = await send(publisher, left, 10_000);
        expect(requests).toBeLessThanOrEqual(101);
        for (const [index, outcome] of outcomes.entries()) {
          const isInvalid = left[index]?.key === null;
          if (outcome.kind !== 'released') expect(outcome.kind).toBe(isInvalid ? 'rejected' : 'delivered');
        }
        const settled = outcomes.filter(({ kind }) => kind !== 'released');
        expect(settled.length).toBeGreaterThan(0);
        rejected += settled.filter(({ kind }) => kind === 'rejected').length;
        left = left.filter((_, index) => outcomes[index]?.kind === 'released');
      }
      expect(rejected).toBe(invalid.length);
      expect(await reader.count(topic)).toBe(good.length);
    } finally {
      await Promise.all(opened.splice(0).map((publisher) => publisher.close()));
      await cluster.close();
    }
  });
});

describe('a topic', () => {
  it('that does not exist is a retry for its own events alone', async () => {
    const publisher = await connected();
    const topic = await reader.createTopic();
    const batch = [...messages(topic, 2, 1), ...messages('nowhere', 1, 1), ...messages(topic, 2, 1)];
    batch[2] = { ...(batch[2] as Message), key: 'other' };
    const outcomes = await send(publisher, batch);
    expect(kinds(outcomes)).toEqual(['delivered', 'delivered', 'failed', 'delivered', 'delivered']);
    expect(reasonAt(outcomes, 2)).toMatch(/UNKNOWN_TOPIC_OR_PARTITION/);
  });

  it('that does not exist holds up the batches of the others only once', async () => {
    const publisher = await connected();
    const topic = await reader.createTopic();
    const tookMs: number[] = [];
    const startedAt = performance.now();
    // It is looked up every two seconds, which takes kafkajs more than one.
    while (performance.now() - startedAt < 10_000) {
      const calledAt = performance.now();
      const batch = [testMessage({ topic, key: 'a' }), testMessage({ topic: 'nowhere.either', key: 'b' })];
      expect(kinds(await send(publisher, batch))).toEqual(['delivered', 'failed']);
      tookMs.push(performance.now() - calledAt);
      await nextTurn();
    }
    const [first = 0, ...later] = tookMs;
    expect(first).toBeGreaterThan(500);
    expect(later.filter((ms) => ms > 500).length).toBeLessThan(2);
  });

  it('that was missing is found once it exists', async () => {
    const publisher = await connected();
    const topic = await reader.createTopic();
    const tryOnce = async () => kinds(await send(publisher, [testMessage({ topic, key: 'a' })]))[0];
    await reader.recreateTopic(topic, 1, async () => expect(await tryOnce()).toBe('failed'));
    await until(async () => (await tryOnce()) === 'delivered', { what: 'the topic is found' });
    expect(await reader.count(topic)).toBe(1);
  });

  it('that was deleted does not take the others along', async () => {
    const publisher = await connected();
    const [kept, deleted] = [await reader.createTopic(), await reader.createTopic()];
    expect(kinds(await send(publisher, [...messages(kept, 1, 1), ...messages(deleted, 1, 1)]))).toEqual([
      'delivered',
      'delivered',
    ]);
    const client = new Kafka({ brokers: [server.url], logLevel: logLevel.NOTHING });
    const admin = client.admin();
    await admin.connect();
    await admin.deleteTopics({ topics: [deleted] });
    await until(async () => !(await admin.listTopics()).includes(deleted), { what: 'the topic is gone' });
    await admin.disconnect();
    const added = await reader.createTopic();
    const batch = [deleted, kept, added].map((topic) => testMessage({ topic, key: topic }));
    const outcomes = await send(publisher, batch);
    expect(kinds(outcomes)).toEqual(['failed', 'delivered', 'delivered']);
  });

  it('that holds back a key in one topic holds it back in the next', async () => {
    const publisher = await connected({ messageBytesMax: 3_000_000 });
    const [first, second] = [await reader.createTopic(), await reader.createTopic()];
    const large = testMessage({ topic: first, key: 'a', body: 'x'.repeat(2_000_000) });
    const batch = [large, testMessage({ topic: second, key: 'a' }), testMessage({ topic: second, key: 'b' })];
    expect(kinds(await send(publisher, batch))).toEqual(['rejected', 'released', 'delivered']);
    expect(await reader.count(second)).toBe(1);
  });

  it('with an impossible name, and a header that is not a string, are rejected', async () => {
    const publisher = await connected();
    const topic = await reader.createTopic();
    const odd = { ...testMessage({ topic }), headers: { tries: 3 as unknown as string } };
    const batch = [testMessage({ topic: 'no spaces' }), odd, testMessage({ topic: '..' }), testMessage({ topic })];
    const outcomes = await send(publisher, batch);
    expect(kinds(outcomes)).toEqual(['rejected', 'rejected', 'rejected', 'delivered']);
    expect(reasonAt(outcomes, 0)).toMatch(/INVALID_TOPIC_EXCEPTION: "no spaces"/);
    expect(reasonAt(outcomes, 1)).toBe('The header tries must be a text, not number.');
  });
});

describe('a refusal', () => {
  const sasl = { mechanism: 'plain', username: 'postcommit', password: 'postcommit' } as const;
  const ssl = { ca: testCertificate, servername: 'localhost' };
  const brokers = () => [server.env.KAFKA_SASL_BROKERS ?? ''];

  it('of nothing: the right password over a trusted connection', async () => {
    const publisher = await connected({ brokers: brokers(), ssl, sasl });
    const topic = await reader.createTopic();
    expect(kinds(await send(publisher, [testMessage({ topic })]))).toEqual(['delivered']);
    await publisher.health(AbortSignal.timeout(10_000));
  });

  it('of wrong credentials is reported at connect, with the broker’s message', async () => {
    const wrong = { ...sasl, password: 'wrong' };
    await expect(connected({ brokers: brokers(), ssl, sasl: wrong })).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DESTINATION_REFUSED',
      message: expect.stringMatching(/Invalid username or password/),
    });
  });

  it('of a certificate that is not trusted, or not for this host, is reported at connect', async () => {
    const untrusted = connected({ brokers: brokers(), ssl: { servername: 'localhost' }, sasl });
    await expect(untrusted).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DESTINATION_REFUSED',
      message: expect.stringMatching(/self.signed certificate/),
    });
    const elsewhere = connected({ brokers: brokers(), ssl: { ca: testCertificate, servername: 'kafka' }, sasl });
    await expect(elsewhere).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DESTINATION_REFUSED' });
  });

  it('of options that cannot work is reported at once', () => {
    const brokers = ['localhost:9092'];
    const producer = new Kafka({ brokers, logLevel: logLevel.NOTHING }).producer({ idempotent: true });
    const refused: [KafkaOptions, RegExp][] = [
      [{}, /brokers must be a list of host:port/],
      [{ brokers: ['localhost'] }, /brokers must be a list/],
      [{ brokers, batchSize: 3 } as KafkaOptions, /no option batchSize/],
      [{ brokers, compression: 'zip' as 'gzip' }, /compression must be one of none, gzip/],
      [{ brokers, messageBytesMax: 1 }, /messageBytesMax must be a whole number/],
      [{ brokers, producer }, /brokers has no effect/],
      [{ producer }, /pass a function/],
      [{ producer: {} as never }, /must be a producer of kafkajs/],
      [{ brokers, sasl: {} as never }, /sasl must be/],
    ];
    for (const [options, reason] of refused) {
      expect(() => kafka(options)).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION' }));
      expect(() => kafka(options)).toThrow(reason);
    }
  });
});

describe('a broker that never answers', () => {
  it('gets nothing later of what was given up', async () => {
    const publisher = await connected({ messageBytesMax: 2_000_000 });
    const topic = await reader.createTopic({ 'max.message.bytes': '2000000' }, 1);
    expect(kinds(await send(publisher, [testMessage({ topic, key: 'a', body: '{"number":0}' })]))).toEqual([
      'delivered',
    ]);
    await server.own.freeze();
    try {
      // More than the sockets' buffers hold, so that the system still has some of it to send.
      const batch = messages(topic, 3_000, 1);
      const started = performance.now();
      const outcomes = await send(publisher, batch, 1_000);
      expect(performance.now() - started).toBeLessThan(2_000);
      expect(new Set(kinds(outcomes))).toEqual(new Set(['unavailable']));
    } finally {
      server.own.thaw();
    }
    await until(() => publisher.health(AbortSignal.timeout(5_000)).then(() => true), { what: 'it answers again' });
    expect(kinds(await send(publisher, [testMessage({ topic, key: 'a', body: '{"number":1}' })]))).toEqual([
      'delivered',
    ]);
    expect((await arrived(topic, 2)).get('a')).toEqual([0, 1]);
    expect(await reader.count(topic)).toBe(2);
  });
});

describe('a producer that is given', () => {
  const client = () => new Kafka({ brokers: [server.url], logLevel: logLevel.NOTHING });

  it('stays its owner’s: it is connected and not closed', async () => {
    const producer = client().producer({ createPartitioner: Partitioners.DefaultPartitioner });
    const publisher = await connected({ producer });
    const topic = await reader.createTopic();
    expect(kinds(await send(publisher, messages(topic, 50, 5)))).toEqual(Array(50).fill('delivered'));
    await publisher.health(AbortSignal.timeout(10_000));
    await publisher.close();
    await producer.send({ topic, messages: [{ key: 'order:0', value: '{"number":50}' }] });
    await producer.disconnect();
    expect((await arrived(topic, 51)).get('order:0')).toEqual([...Array(11).keys()].map((n) => n * 5));
  });

  it('from a function is replaced after a failure, and loses nothing', async () => {
    let made = 0;
    const producer = () => {
      made++;
      return client().producer({ idempotent: true, createPartitioner: Partitioners.DefaultPartitioner });
    };
    const publisher = await connected({ producer, messageBytesMax: 2_000_000 });
    const topic = await reader.createTopic({}, 3);
    const batch = messages(topic, 60, 6);
    const guilty = { ...(batch[30] as Message), body: 'y'.repeat(1_500_000) };
    batch[30] = guilty;
    const rejected = await deliverAll(publisher, batch);
    expect([...rejected.keys()]).toEqual([guilty]);
    expect(made).toBeGreaterThan(1);
    const received = await arrived(topic, 59);
    expect(new Set([...received.values()].flat()).size).toBe(59);
  });
});

it('puts a key where Kafka’s own clients put it', () => {
  const choose = Partitioners.DefaultPartitioner();
  const partitionMetadata = Array.from({ length: 7 }, (_, partitionId) => ({
    partitionId,
    leader: 1,
    partitionErrorCode: 0,
    replicas: [1],
    isr: [1],
  }));
  for (const key of ['', 'a', 'ab', 'abc', 'abcd', 'order:1', 'Žluťoučký kůň', 'x'.repeat(1_001)]) {
    const expected = choose({ topic: 't', partitionMetadata, message: { key, value: null } });
    expect([key, partitionOfKey(key, 7)]).toEqual([key, expected]);
  }
});

it('compresses', async () => {
  const publisher = await connected({ compression: 'gzip' });
  const topic = await reader.createTopic({ 'max.message.bytes': '50000' }, 1);
  // Far over the limit before, far below it after.
  const body = JSON.stringify({ number: 7, padding: 'x'.repeat(900_000) });
  expect(kinds(await send(publisher, [testMessage({ topic, key: 'a', body })]))).toEqual(['delivered']);
  expect((await arrived(topic, 1)).get('a')).toEqual([7]);
  await expect(connected({ compression: 'zstd' })).rejects.toThrow(/no codec for compression zstd/);
});
