import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Message, Publisher, PublishOutcome } from '../publishers/publisher.ts';
import type { PublisherHarness, ReceivedMessage } from './publisher-conformance.ts';
import { testMessage } from './test-message.ts';

/** For what a healthy broker does at once, on a machine that is busy. */
export const patienceMs = 20_000;
/** How soon after its signal is aborted a publisher must have answered. */
export const slackMs = 2_000;
const closeMsMax = 15_000;
const redeliveryMsMax = 15_000;
const redeliveryPauseMs = 200;
const textDecoder = new TextDecoder();

/** A publisher that is connected, and a topic of its own, for one check. */
export interface Session {
  readonly publisher: Publisher;
  readonly topic: string;
  /** A message whose body names it. Order is checked by key and number. */
  message(key: string | null, number: number, more?: Partial<Omit<Message, 'bytes'>>): Message;
  /** One call of publish(), with the checks that every answer must pass. */
  publish(batch: readonly Message[], timeoutMs?: number): Promise<readonly PublishOutcome[]>;
  /** In batches of what the publisher allows, one after the other. */
  publishAll(messages: readonly Message[]): Promise<void>;
  /** As the relay does: again what was not taken, until it is. */
  redeliver(messages: readonly Message[]): Promise<void>;
  /** What has arrived, once every one of `wanted` has. */
  arrived(wanted: readonly Message[]): Promise<ReceivedMessage[]>;
}

export async function withSession(harness: PublisherHarness, work: (session: Session) => Promise<void>): Promise<void> {
  const topic = await harness.createTopic();
  await withPublisher(harness, async (publisher) => {
    await within(patienceMs + slackMs, 'connect() resolves', publisher.connect(AbortSignal.timeout(patienceMs)));
    await work(openSession(harness, publisher, topic));
  });
}

/** A publisher that is not connected yet. */
export async function withPublisher(
  harness: PublisherHarness,
  work: (publisher: Publisher) => Promise<void>,
): Promise<void> {
  const publisher = harness.createPublisher();
  try {
    await work(publisher);
  } catch (error) {
    // What made the check fail is what matters; a broken publisher may well not close either.
    await Promise.race([publisher.close(), sleep(closeMsMax, undefined, { ref: false })]).catch(() => {});
    throw error;
  }
  await close(publisher);
}

export async function close(publisher: Publisher): Promise<void> {
  await within(closeMsMax, 'close() resolves', publisher.close());
}

export function openSession(harness: PublisherHarness, publisher: Publisher, topic: string): Session {
  const session: Session = {
    publisher,
    topic,
    message(key, number, more = {}) {
      return testMessage({ topic, key, body: JSON.stringify({ key, number }), ...more });
    },
    async publish(batch, timeoutMs = patienceMs) {
      const call = publisher.publish(batch, AbortSignal.timeout(timeoutMs));
      const outcomes = await within(timeoutMs + slackMs, `publish() answers within ${timeoutMs} ms`, call);
      checkOutcomes(batch, outcomes);
      return outcomes;
    },
    async publishAll(messages) {
      for (const batch of inBatches(messages, publisher)) {
        const outcomes = await session.publish(batch);
        for (const outcome of outcomes) assert.deepEqual(outcome, { kind: 'delivered' }, describeOutcome(outcome));
      }
    },
    async redeliver(messages) {
      const deadline = performance.now() + redeliveryMsMax;
      for (let left = messages; left.length > 0; ) {
        left = await redeliverOnce(session, left);
        const late = left.length > 0 && performance.now() > deadline;
        assert.ok(!late, `${left.length} messages are not taken ${redeliveryMsMax} ms after their first redelivery`);
        if (left.length > 0) await sleep(redeliveryPauseMs);
      }
    },
    arrived: (wanted) => readAll(harness, topic, wanted),
  };
  return session;
}

/** Keys stay in order here too: what follows a message that failed is not tried before it. */
async function redeliverOnce(session: Session, messages: readonly Message[]): Promise<Message[]> {
  const left: Message[] = [];
  const held = new Set<string | null>();
  for (const batch of inBatches(messages, session.publisher)) {
    const free = batch.filter(({ key }) => key === null || !held.has(key));
    const outcomes = await session.publish(free);
    for (const message of batch) {
      const outcome = outcomes[free.indexOf(message)];
      assert.notEqual(outcome?.kind, 'rejected', outcome && describeOutcome(outcome));
      if (outcome?.kind === 'delivered') continue;
      left.push(message);
      held.add(message.key);
    }
  }
  return left;
}

function inBatches(messages: readonly Message[], { capabilities }: Publisher): Message[][] {
  const batches: Message[][] = [];
  let bytes = 0;
  for (const message of messages) {
    const current = batches.at(-1);
    const fits = current && current.length < capabilities.batchSizeMax;
    if (fits && bytes + message.bytes <= capabilities.batchBytesMax) {
      current.push(message);
      bytes += message.bytes;
    } else {
      batches.push([message]);
      bytes = message.bytes;
    }
  }
  return batches;
}

/** The same event may arrive twice, so the count alone does not tell that all have. */
async function readAll(
  harness: PublisherHarness,
  topic: string,
  wanted: readonly Message[],
): Promise<ReceivedMessage[]> {
  let received: ReceivedMessage[] = [];
  let missing = new Set(wanted.map(bodyText));
  while (missing.size > 0) {
    const count = received.length + missing.size;
    const first = [...missing].slice(0, 3).join(', ');
    received = await within(30_000, `read() answers`, harness.read(topic, count)).catch((cause) => {
      throw new Error(`${missing.size} of ${wanted.length} messages did not arrive, e.g. ${first}: ${cause}`, {
        cause,
      });
    });
    assert.ok(received.length >= count, `read(topic, ${count}) answered with ${received.length} messages`);
    const seen = new Set(received.map(({ body }) => body));
    missing = new Set([...missing].filter((body) => !seen.has(body)));
  }
  return received;
}

export function bodyText({ body }: Message): string {
  return typeof body === 'string' ? body : textDecoder.decode(body);
}

function checkOutcomes(batch: readonly Message[], outcomes: readonly PublishOutcome[]): void {
  assert.ok(Array.isArray(outcomes), 'publish() must answer with an array of outcomes');
  assert.equal(outcomes.length, batch.length, `a batch of ${batch.length} must have ${batch.length} outcomes`);
  for (const outcome of outcomes as readonly PublishOutcome[]) {
    assert.match(
      outcome?.kind ?? 'nothing',
      /^(delivered|failed|rejected|unavailable|released)$/,
      'the kind of an outcome',
    );
    if (outcome.kind === 'delivered') continue;
    assert.ok(typeof outcome.reason === 'string' && outcome.reason !== '', `${outcome.kind} must give a reason`);
  }
}

export function describeOutcome(outcome: PublishOutcome): string {
  return outcome.kind === 'delivered' ? 'delivered' : `${outcome.kind}: ${outcome.reason}`;
}

/** `promise`, or a failure that says what was promised. */
export async function within<T>(timeoutMs: number, promised: string, promise: Promise<T>): Promise<T> {
  const overdue = new AbortController();
  try {
    return await Promise.race([
      promise,
      sleep(timeoutMs, undefined, { signal: overdue.signal }).then(() => {
        throw new assert.AssertionError({ message: `${promised}: waited ${timeoutMs} ms in vain` });
      }),
    ]);
  } finally {
    overdue.abort();
  }
}
