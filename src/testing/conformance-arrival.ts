import assert from 'node:assert/strict';
import type { Message } from '../publishers/publisher.ts';
import { bodyText, describeOutcome, patienceMs, type Session, within, withSession } from './conformance-session.ts';
import type { ConformanceCheck, PublisherHarness, ReceivedMessage } from './publisher-conformance.ts';

/** What a consumer gets is what was published. */
export function arrivalChecks(harness: PublisherHarness): ConformanceCheck[] {
  const check: Check = (name, work) => ({
    name,
    run: () => withSession(harness, work),
  });
  const only: Only = async (session, message) => {
    await session.publishAll([message]);
    return await firstOf(harness, session.topic, 1);
  };
  return [
    check('body, content type and headers arrive', async (session) => {
      const headers = {
        'event-type': 'order.created',
        'trace-id': '4bf92f3577b34da6a3ce929d0e0e4736',
        'x-team': 'a b=c;d',
      };
      const contentType = 'application/cloudevents+json; charset=utf-8';
      const message = session.message('order:1', 1, { headers, contentType });
      const received = await only(session, message);
      assert.equal(received.body, message.body, 'the body');
      assert.equal(received.contentType, contentType, 'the content type');
      assertHeaders(received, headers);
    }),
    check('a message without headers arrives', async (session) => {
      const message = session.message('order:1', 1, { headers: {}, contentType: 'application/json' });
      const received = await only(session, message);
      assert.equal(received.body, message.body, 'the body');
      assert.equal(received.contentType, 'application/json', 'the content type');
    }),
    ...keyChecks(harness, check, only),
    check('text beyond ASCII arrives unchanged in the body', async (session) => {
      const body = JSON.stringify({ text: 'Grüße, 注文 №1, 🧾 \\ " ' });
      const received = await only(session, session.message('order:1', 1, { body }));
      assert.equal(received.body, body, 'the body');
    }),
    check('a header beyond ASCII arrives unchanged, or its message is a reject', async (session) => {
      const headers = { 'x-customer': 'Jürgen 注文' };
      const message = session.message('order:1', 1, { headers });
      const [outcome] = await session.publish([message]);
      if (outcome?.kind === 'rejected') return;
      assert.equal(outcome?.kind, 'delivered', outcome && describeOutcome(outcome));
      assertHeaders(await firstOf(harness, session.topic, 1), headers);
    }),
    check('a header of many digits arrives as that text', async (session) => {
      // `event-seq`: a client that makes a number of it loses digits.
      const headers = { 'event-seq': '9223372036854775807' };
      assertHeaders(await only(session, session.message('order:1', 1, { headers })), headers);
    }),
    check('a body of bytes that are text arrives as that text', async (session) => {
      const body = new TextEncoder().encode('{"text":"Grüße"}');
      const received = await only(session, session.message('order:1', 1, { body }));
      assert.equal(received.body, '{"text":"Grüße"}', 'the body');
    }),
    check('a body of bytes that are not text arrives unchanged', async (session) => {
      const body = Uint8Array.from({ length: 256 }, (_, byte) => byte);
      const contentType = 'application/octet-stream';
      assertBytes(await only(session, session.message('order:1', 1, { body, contentType })), body);
    }),
    ...idChecks(harness, check, only),
  ];
}

type Check = (name: string, work: (session: Session) => Promise<void>) => ConformanceCheck;
type Only = (session: Session, message: Message) => Promise<ReceivedMessage>;

function idChecks(harness: PublisherHarness, check: Check, only: Only): ConformanceCheck[] {
  return [
    check('the event id arrives', async (session) => {
      const message = session.message('order:1', 1);
      assert.equal((await only(session, message)).eventId, message.eventId, 'the event id');
    }),
    check('the deduplication id is in the field that the broker deduplicates by', async (session) => {
      if (!session.publisher.capabilities.deduplicates) return;
      const message = session.message('order:1', 1);
      assert.equal(
        (await only(session, message)).deduplicationId,
        message.deduplicationId,
        'the deduplication id, which is not the event id',
      );
    }),
    check('an event for two targets in one topic arrives twice', async (session) => {
      const first = session.message('order:1', 1);
      const second = session.message('order:1', 2, { eventId: first.eventId });
      for (const each of [first, second]) await session.publishAll([each]);
      const received = await session.arrived([first, second]);
      const ids = received.map(({ eventId }) => eventId);
      assert.deepEqual(ids, [first.eventId, first.eventId], 'the event ids of both copies');
    }),
    check('a redelivery carries the same id', async (session) => {
      const message = session.message('order:1', 1);
      const other = session.message('order:1', 2);
      for (const each of [message, message, other]) await session.publishAll([each]);
      // The last one comes behind the second copy, or its absence.
      const copies = session.publisher.capabilities.deduplicates ? 1 : 2;
      const received = await harness.read(session.topic, copies + 1);
      const ids = received.map(({ eventId }) => eventId).sort();
      const expected = [...Array<string>(copies).fill(message.eventId), other.eventId].sort();
      assert.deepEqual(
        ids,
        expected,
        `deduplicates is ${copies === 1}: the ids of a message published twice, and of another`,
      );
    }),
  ];
}

function keyChecks(harness: PublisherHarness, check: Check, only: Only): ConformanceCheck[] {
  if (harness.keyless) return [];
  const keys = { 'the key arrives': 'order:42', 'a key beyond ASCII arrives': 'Bestellung:ü 注文' };
  return Object.entries(keys).map(([name, key]) =>
    check(name, async (session) => {
      const received = await only(session, session.message(key, 1));
      assert.equal(
        received.key,
        key,
        'the key (a harness may say `keyless: true` for a broker that has no place for it)',
      );
    }),
  );
}

async function firstOf(harness: PublisherHarness, topic: string, count: number): Promise<ReceivedMessage> {
  const [first] = await within(patienceMs + 10_000, 'read() answers', harness.read(topic, count));
  assert.ok(first, 'read(topic, 1) answered with no message');
  return first;
}

function assertHeaders({ headers }: ReceivedMessage, expected: Record<string, string>): void {
  for (const [name, value] of Object.entries(expected)) assert.equal(headers[name], value, `the header ${name}`);
}

function assertBytes({ body, bodyBytes }: ReceivedMessage, expected: Uint8Array): void {
  if (bodyBytes !== undefined) {
    assert.deepEqual([...bodyBytes], [...expected], 'the bytes of the body');
    return;
  }
  const forms = ['utf8', 'latin1', 'base64'].map((form) => Buffer.from(expected).toString(form as BufferEncoding));
  assert.ok(forms.includes(body), `the body is neither the bytes as text nor their base64: ${body.slice(0, 100)}`);
}

/** Fails when the messages of a key did not arrive in the order they are given in. Second copies do not count. */
export function assertKeyOrder(received: readonly ReceivedMessage[], sent: readonly Message[]): void {
  const place = new Map<string, number>();
  for (const { body } of received) if (!place.has(body)) place.set(body, place.size);
  const lastOfKey = new Map<string, { place: number; body: string }>();
  for (const message of sent) {
    if (message.key === null) continue;
    const body = bodyText(message);
    const here = { place: place.get(body) ?? -1, body };
    const last = lastOfKey.get(message.key);
    assert.ok(last === undefined || last.place < here.place, `${here.body} arrived before ${last?.body}`);
    lastOfKey.set(message.key, here);
  }
}
