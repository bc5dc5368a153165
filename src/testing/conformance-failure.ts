import assert from 'node:assert/strict';
import type { Message } from '../publishers/publisher.ts';
import { assertKeyOrder } from './conformance-arrival.ts';
import { describeOutcome, type Session, withSession } from './conformance-session.ts';
import type { ConformanceCheck, PublisherHarness } from './publisher-conformance.ts';

interface Poison {
  name: string;
  spoil(message: Message, session: Session): Message;
}

/** A message that the broker can never take is a reject, alone. */
export function failureChecks(harness: PublisherHarness): ConformanceCheck[] {
  return poisons(harness).flatMap(({ name, spoil }) => [
    {
      name: `${name} message is a reject`,
      run: () =>
        withSession(harness, async (session) => {
          const [outcome] = await session.publish([spoil(session.message('order:1', 1), session)]);
          assertKind(outcome, 'rejected', `the ${name} message`);
          await session.publishAll([session.message('order:1', 2)]);
        }),
    },
    {
      name: `${name} message in a batch takes no other along, and nothing of its key passes it`,
      run: () => withSession(harness, (session) => checkPoisonedBatch(session, (message) => spoil(message, session))),
    },
    {
      name: `${name} message without a key takes nothing of its batch along`,
      run: () =>
        withSession(harness, async (session) => {
          const size = Math.min(5, session.publisher.capabilities.batchSizeMax);
          const batch = Array.from({ length: size }, (_, n) => session.message(null, n));
          batch[0] = spoil(session.message(null, 0), session);
          const [first, ...others] = await session.publish(batch);
          assertKind(first, 'rejected', `the ${name} message`);
          for (const outcome of others) assertKind(outcome, 'delivered', 'a message beside it');
          await session.arrived(batch.slice(1));
        }),
    },
  ]);
}

function poisons({ oversizedBytes, malformed }: PublisherHarness): Poison[] {
  const found: Poison[] = [];
  if (oversizedBytes !== undefined) {
    const spoil: Poison['spoil'] = ({ key }, session) =>
      session.message(key, 0, { body: `oversized ${'x'.repeat(oversizedBytes)}` });
    found.push({ name: 'an oversized', spoil });
  }
  if (malformed !== undefined) found.push({ name: 'a malformed', spoil: (message) => malformed(message) });
  return found;
}

async function checkPoisonedBatch(session: Session, spoil: (message: Message) => Message): Promise<void> {
  const poison = spoil(session.message('a', 2));
  const before = [session.message('a', 1), session.message('b', 1)];
  const behind = [session.message('b', 2), session.message('a', 3), session.message(null, 1), session.message('c', 1)];
  const last = [session.message('a', 4), session.message('b', 3)];
  const batch = [...before, poison, ...behind, ...last].slice(0, session.publisher.capabilities.batchSizeMax);
  const outcomes = await session.publish(batch);
  // A publisher that takes one or two messages at a time never sees it here.
  const place = batch.includes(poison) ? batch.indexOf(poison) : batch.length;
  for (const [index, message] of batch.entries()) {
    const outcome = outcomes[index];
    if (message === poison) assertKind(outcome, 'rejected', 'the message that cannot be taken');
    else if (message.key === 'a' && index > place) assertKind(outcome, 'released', 'a message behind it with its key');
    else assertKind(outcome, 'delivered', `message ${index} of the batch, of the key ${message.key}`);
  }
  await session.redeliver(
    batch.filter((message, index) => message !== poison && outcomes[index]?.kind !== 'delivered'),
  );

  const good = batch.filter((message) => message !== poison);
  const received = await session.arrived(good);
  assert.equal(
    received.length,
    good.length,
    'a message that is not delivered must not be in the broker, so that every message arrives once',
  );
  if (session.publisher.capabilities.ordered) assertKeyOrder(received, good);
}

type Outcome = Awaited<ReturnType<Session['publish']>>[number];

function assertKind(outcome: Outcome | undefined, kind: Outcome['kind'], what: string): void {
  assert.equal(outcome?.kind, kind, `${what} must be ${kind}, is ${outcome && describeOutcome(outcome)}`);
}
