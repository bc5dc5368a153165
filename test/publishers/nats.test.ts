import { randomUUID } from 'node:crypto';
import { DiscardPolicy, type JetStreamManager, jetstreamManager } from '@nats-io/jetstream';
import { connect, type NatsConnection } from '@nats-io/transport-node';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type NatsOptions, nats } from '../../src/publishers/nats.ts';
import type { Message, Publisher } from '../../src/publishers/publisher.ts';
import { testMessage } from '../../src/testing/index.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';
import { deliverThroughCrash } from './crash-of-server.ts';

// An account with JetStream, a user in it that may not publish everywhere, and an account without.
const accounts = `{
  SHOP: { jetstream: enabled, users: [
    { user: admin, password: secret },
    { user: relay, password: secret, permissions: { publish: { deny: ["forbidden"] } } } ] },
  PLAIN: { users: [{ user: plain, password: secret }] } }`;
const server = fileService('nats', { settings: { accounts } });
const soon = () => AbortSignal.timeout(10_000);
const login = (user: string) => ({ servers: server.url, user, pass: 'secret' });

let observer: NatsConnection;
let manager: JetStreamManager;
let subject: string;
let publishers: Publisher[] = [];

async function observe(): Promise<void> {
  observer = await connect({ ...login('admin'), reconnect: false });
  manager = await jetstreamManager(observer);
}

async function connected(options: Partial<NatsOptions> = {}): Promise<Publisher> {
  const publisher = nats({ ...login('relay'), ...options });
  publishers.push(publisher);
  await publisher.connect(soon());
  return publisher;
}

async function idsIn(stream: string): Promise<string[]> {
  const { messages, first_seq: first } = (await manager.streams.info(stream)).state;
  const stored = Array.from({ length: messages }, (_, n) => manager.streams.getMessage(stream, { seq: first + n }));
  return (await Promise.all(stored)).map((each) => each?.header.get('Nats-Msg-Id') ?? '');
}

const message = (given: Partial<Message> = {}) => testMessage({ topic: subject, ...given });
const ok = { kind: 'delivered' };

describe('the NATS publisher', () => {
  beforeAll(observe);
  afterAll(() => observer.close());
  beforeEach(async () => {
    subject = `orders-${randomUUID()}`;
    await manager.streams.add({ name: subject, subjects: [subject, `${subject}.>`] });
  });
  afterEach(async () => {
    await Promise.all(publishers.map((publisher) => publisher.close()));
    publishers = [];
  });

  it('counts a duplicate as delivered, and the stream keeps one', async () => {
    const publisher = await connected();
    const sent = message();
    for (let n = 0; n < 2; n++) expect(await publisher.publish([sent], soon())).toEqual([ok]);
    expect(await idsIn(subject)).toEqual([sent.deduplicationId]);
  });

  it('answers with retry where no stream stores the subject, and only there', async () => {
    const publisher = await connected();
    const outcomes = await publisher.publish([message({ topic: 'nobody.stores' }), message()], soon());
    expect(outcomes[0]).toEqual({ kind: 'failed', reason: expect.stringMatching(/No stream.*'nobody\.stores'/) });
    expect(outcomes[1]).toEqual(ok);
  });

  it('is not fooled by subscribers that are no streams', async () => {
    const publisher = await connected({ ackTimeoutMs: 300 });
    observer.subscribe('silent', { callback: () => {} });
    observer.subscribe('chatty', { callback: (_, request) => void request.respond('thanks') });
    observer.subscribe('json', { callback: (_, request) => void request.respond('{}') });
    await observer.flush();
    const topics = ['silent', 'chatty', 'json', subject];
    const outcomes = await publisher.publish(
      topics.map((topic) => message({ topic })),
      soon(),
    );
    expect(outcomes).toEqual([
      { kind: 'failed', reason: expect.stringContaining("No stream stores the subject 'silent'") },
      { kind: 'failed', reason: expect.stringContaining("'chatty' was answered by a subscriber that is not a stream") },
      { kind: 'failed', reason: expect.stringContaining("'json' was answered by a subscriber that is not a stream") },
      ok,
    ]);
  });

  it('rejects what is no subject to publish to, alone and unsent', async () => {
    const publisher = await connected();
    const bad = ['', 'a b', 'a\r\nPUB b 0', 'a.*', '>', 'a..b', '.a', 'a.', 'x'.repeat(3_801), 'a\u0000b'];
    // A command to the server, which would answer to it like a stream.
    bad.push(`$JS.API.STREAM.DELETE.${subject}`, '$SYS.REQ.SERVER.PING');
    const outcomes = await publisher.publish(
      [...bad, subject].map((topic) => message({ topic })),
      soon(),
    );
    expect(outcomes.slice(0, -1).map(({ kind }) => kind)).toEqual(bad.map(() => 'rejected'));
    expect(outcomes.at(-1)).toEqual(ok);
    const longest = `${subject}.`.padEnd(3_800, 'x');
    expect(await publisher.publish([message({ topic: longest })], soon())).toEqual([ok]);
  });

  it('rejects headers that NATS cannot carry, and keeps the event id its own', async () => {
    const publisher = await connected();
    const headers = [
      { 'a:b': 'x' },
      { 'a b': 'x' },
      { '': 'x' },
      { a: 'x\r\ny' },
      { a: null },
      { a: {} },
      { 'Nats-Rollup': 'all' },
    ];
    const batch = headers.map((each) => message({ headers: each as Record<string, string> }));
    for (const broken of [{ body: 7 }, { contentType: undefined }]) batch.push({ ...message(), ...(broken as object) });
    const good = message({ headers: { 'nats-msg-id': 'mine', 'Nats-Msg-Id': 'mine', count: 3 as unknown as string } });
    const outcomes = await publisher.publish([...batch, good], soon());
    expect(outcomes.map(({ kind }) => kind)).toEqual([...batch.map(() => 'rejected'), 'delivered']);
    const stored = await manager.streams.getMessage(subject, { seq: 1 });
    expect(stored?.header.get('Nats-Msg-Id')).toBe(good.deduplicationId);
    expect(stored?.header.get('event-id')).toBe(good.eventId);
    expect(stored?.header.get('count')).toBe('3');
  });

  it('rejects what is too large for the server or for the stream, and leaves the others alone', async () => {
    await manager.streams.update(subject, { max_msg_size: 1_000 });
    const publisher = await connected();
    const batch = [2_000_000, 2_000, 10].map((size) => message({ body: 'x'.repeat(size) }));
    expect(await publisher.publish(batch, soon())).toEqual([
      { kind: 'rejected', reason: expect.stringContaining('max_payload of 1048576') },
      { kind: 'rejected', reason: expect.stringContaining('message size exceeds maximum allowed') },
      ok,
    ]);
  });

  it('answers with retry what a full stream does not take, and delivers it when there is room', async () => {
    await manager.streams.update(subject, { max_msgs: 1, discard: DiscardPolicy.New });
    const publisher = await connected();
    expect(await publisher.publish([message()], soon())).toEqual([ok]);
    const second = message();
    const full = { kind: 'failed', reason: expect.stringContaining('maximum messages exceeded') };
    expect(await publisher.publish([second], soon())).toEqual([full]);
    await manager.streams.purge(subject);
    expect(await publisher.publish([second], soon())).toEqual([ok]);
  });

  it('answers with retry where the user may not publish', async () => {
    const publisher = await connected();
    const outcomes = await publisher.publish([message({ topic: 'forbidden' }), message()], soon());
    expect(outcomes[0]).toEqual({ kind: 'failed', reason: expect.stringMatching(/Permissions Violation.*forbidden/i) });
    expect(outcomes[1]).toEqual(ok);
  });

  it('is unavailable where JetStream is not enabled: no event is to blame', async () => {
    const publisher = await connected(login('plain'));
    const outcomes = await publisher.publish([message()], soon());
    expect(outcomes).toEqual([{ kind: 'unavailable', reason: expect.stringContaining('JetStream is not enabled') }]);
  });

  it('leaves no sockets behind at a server that accepts connections and says nothing', async () => {
    const sockets = () => process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
    const publisher = await connected();
    const before = sockets();
    await server.own.freeze();
    const isUnavailable = async () =>
      (await publisher.publish([message()], AbortSignal.timeout(100)))[0]?.kind === 'unavailable';
    try {
      // A thread of the server may still answer while the others stop.
      await until(isUnavailable, { what: 'the server is silent' });
      for (let attempt = 0; attempt < 5; attempt++) {
        expect(await isUnavailable()).toBe(true);
      }
      const impatient = nats({ ...login('relay'), connectTimeoutMs: 100 });
      await expect(impatient.connect(soon())).rejects.toThrow(/within 100 ms/);
      await impatient.close();
      await until(() => sockets() < before, { what: 'the sockets are closed' });
    } finally {
      server.own.thaw();
    }
    await until(async () => (await publisher.publish([message()], soon()))[0]?.kind === 'delivered', {
      what: 'it continues',
    });
  });

  it('loses nothing that it called delivered when the server crashes, and continues afterwards', async () => {
    const publisher = await connected();
    const idOf = ({ deduplicationId }: Message) => deduplicationId;
    const delivered = await deliverThroughCrash({ publisher, message, idOf, server: server.own, observe });
    const kept = new Set(await idsIn(subject));
    expect(delivered.filter((id) => !kept.has(id))).toEqual([]);
  }, 30_000);

  it('is refused with a wrong password, and with none', async () => {
    const refusal = { code: 'POSTCOMMIT_E_DESTINATION_REFUSED', message: expect.stringMatching(/Authorization/i) };
    for (const options of [
      { ...login('relay'), pass: 'wrong' },
      { servers: server.url },
      { servers: server.url, token: 'x' },
    ]) {
      await expect(nats(options).connect(soon())).rejects.toMatchObject(refusal);
    }
  });
});

describe('nats()', () => {
  it('refuses options that cannot be meant', () => {
    const servers = 'localhost:4222';
    const bad: [unknown, RegExp][] = [
      [undefined, /object of options/],
      [{}, /servers/],
      [{ servers: [] }, /servers/],
      [{ servers: 'wss://localhost' }, /WebSockets/],
      [{ servers, inFlight: 3 }, /There is no option inFlight/],
      [{ servers, inFlightMax: 0 }, /inFlightMax/],
      [{ servers, token: '' }, /token/],
    ];
    for (const [options, text] of bad) {
      expect(() => nats(options as NatsOptions)).toThrow(
        expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringMatching(text) }),
      );
    }
  });
});
