import assert from 'node:assert/strict';
import type { Message } from '../publishers/publisher.ts';
import { publisherMistake } from '../publishers/publisher-mistake.ts';
import { assertKeyOrder } from './conformance-arrival.ts';
import { patienceMs, type Session, withPublisher, withSession } from './conformance-session.ts';
import type { ConformanceCheck, PublisherHarness } from './publisher-conformance.ts';
import { testMessage } from './test-message.ts';

const keysInBatch = 10;
/** Larger batches than this are not worth a test's time. */
const testedBytesMax = 8_000_000;
const testedCallsMax = 8;

/** Batches: as large as declared, in order, side by side. */
export function batchChecks(harness: PublisherHarness): ConformanceCheck[] {
  const check = (name: string, work: (session: Session) => Promise<void>) => ({
    name,
    run: () => withSession(harness, work),
  });
  return [
    {
      name: 'its capabilities make sense',
      run: () => withPublisher(harness, async (publisher) => assert.equal(publisherMistake(publisher), undefined)),
    },
    check('an empty batch is answered with no outcomes', async ({ publisher }) => {
      assert.deepEqual(await publisher.publish([], AbortSignal.timeout(patienceMs)), []);
    }),
    check('every message has an outcome of its own, even in a full batch', async (session) => {
      const { batchSizeMax, batchBytesMax } = session.publisher.capabilities;
      const one = session.message('order:000000', 0).bytes;
      const size = Math.min(batchSizeMax, Math.floor(Math.min(batchBytesMax, testedBytesMax) / one));
      const batch = Array.from({ length: size }, (_, n) => session.message(`order:${n}`, 1));
      await publishInOne(session, batch);
      await session.arrived(batch);
    }),
    check('a batch of as many bytes as it declares is taken', async (session) => {
      const batch = heavyBatch(session, harness.oversizedBytes);
      await publishInOne(session, batch);
      await session.arrived(batch);
    }),
    check('order per key is kept inside a batch and across batches', async (session) => {
      const messages = mixedMessages(session, 600);
      const size = Math.min(200, session.publisher.capabilities.batchSizeMax);
      for (let start = 0; start < messages.length; start += size) {
        await publishInOne(session, messages.slice(start, start + size));
      }
      assertArrival(session, await session.arrived(messages), messages);
    }),
    check('calls side by side keep the order of their keys', async (session) => {
      const { batchesInFlightMax, batchSizeMax } = session.publisher.capabilities;
      const size = Math.min(20, batchSizeMax);
      const calls = Array.from({ length: Math.min(batchesInFlightMax, testedCallsMax) }, (_, call) =>
        Array.from({ length: size * 3 }, (_, n) => session.message(`order:${call}`, n)),
      );
      await Promise.all(calls.map((messages) => session.publishAll(messages)));
      assertArrival(session, await session.arrived(calls.flat()), calls.flat());
    }),
  ];
}

async function publishInOne(session: Session, batch: readonly Message[]): Promise<void> {
  const outcomes = await session.publish(batch);
  const failed = outcomes.find(({ kind }) => kind !== 'delivered');
  assert.deepEqual(
    failed ?? { kind: 'delivered' },
    { kind: 'delivered' },
    `all ${batch.length} messages are delivered`,
  );
}

/** Ten keys in turn, and a message without one now and then. */
export function mixedMessages(session: Session, count: number, firstNumber = 0): Message[] {
  return Array.from({ length: count }, (_, index) => {
    const number = firstNumber + index;
    return session.message(number % (keysInBatch + 1) === keysInBatch ? null : `order:${number % keysInBatch}`, number);
  });
}

type Arrived = Awaited<ReturnType<Session['arrived']>>;

function assertArrival({ publisher }: Session, received: Arrived, sent: readonly Message[]): void {
  assert.equal(received.length, sent.length, 'every message arrives once when all goes well');
  if (publisher.capabilities.ordered) assertKeyOrder(received, sent);
}

function heavyBatch(session: Session, oversizedBytes = Number.POSITIVE_INFINITY): Message[] {
  const { batchSizeMax, batchBytesMax } = session.publisher.capabilities;
  const total = Math.min(batchBytesMax, testedBytesMax);
  // So many that none is near the limit of a single message.
  const count = Math.min(batchSizeMax, Math.max(2, Math.ceil((4 * total) / oversizedBytes)));
  return Array.from({ length: count }, (_, n) => {
    const key = `order:${n}`;
    const without = testMessage({ topic: session.topic, key, body: '' }).bytes;
    const size = Math.max(1, Math.min(Math.floor(total / count) - without, oversizedBytes / 4));
    return session.message(key, n, { body: String(n).padEnd(Math.floor(size), '.') });
  });
}
