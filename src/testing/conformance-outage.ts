import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ErrorCode } from '../errors.ts';
import type { Message, Publisher } from '../publishers/publisher.ts';
import { assertKeyOrder } from './conformance-arrival.ts';
import { mixedMessages } from './conformance-batch.ts';
import {
  describeOutcome,
  patienceMs,
  type Session,
  slackMs,
  within,
  withPublisher,
  withSession,
} from './conformance-session.ts';
import type { ConformanceCheck, PublisherHarness } from './publisher-conformance.ts';

/** The timeout that the broker's absence must be noticed in. */
const timeoutMs = 3_000;
const recoveryMsMax = 60_000;
const closeMsMax = 10_000;

/** A broker that is stopped, or accepts connections and never answers. */
export function outageChecks(harness: PublisherHarness): ConformanceCheck[] {
  const checks: ConformanceCheck[] = [];
  const { outage, freeze } = harness;
  if (outage) {
    checks.push(
      {
        name: 'a broker that is stopped is unavailable within the timeout, then recovers, and nothing that was ok is lost',
        run: () => checkOutage(harness, { begin: outage.stop, end: outage.start }, 'while it begins'),
      },
      {
        name: 'connect() to a broker that is stopped fails within the timeout, and is no refusal',
        run: () => checkConnect(harness, { begin: outage.stop, end: outage.start }),
      },
    );
  }
  if (freeze) {
    checks.push(
      {
        name: 'a broker that never answers is unavailable within the timeout, then recovers, and nothing that was ok is lost',
        run: () => checkOutage(harness, { begin: freeze.freeze, end: freeze.thaw }, 'not while it begins'),
      },
      {
        name: 'connect() to a broker that never answers fails within the timeout, and is no refusal',
        run: () => checkConnect(harness, { begin: freeze.freeze, end: freeze.thaw }),
      },
      {
        name: 'close() does not wait for a broker that never answers',
        run: () => checkClose(harness, { begin: freeze.freeze, end: freeze.thaw }),
      },
    );
  }
  return checks;
}

interface Disturbance {
  begin(): Promise<void>;
  end(): Promise<void>;
}

/** Restores the broker for the next check, however the work ends. */
async function during(disturbance: Disturbance, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } finally {
    await disturbance.end();
  }
}

async function checkOutage(
  harness: PublisherHarness,
  disturbance: Disturbance,
  publishing: 'while it begins' | 'not while it begins',
): Promise<void> {
  await withSession(harness, async (session) => {
    const size = Math.min(20, session.publisher.capabilities.batchSizeMax);
    const sent = mixedMessages(session, size);
    const left: Message[] = [];
    await session.publishAll(sent);
    await during(disturbance, async () => {
      if (publishing === 'while it begins') {
        const { taken, notTaken } = await publishUntil(session, disturbance.begin(), size);
        sent.push(...taken);
        left.push(...notTaken);
      } else {
        await disturbance.begin();
      }
      const batch = mixedMessages(session, size, 1_000_000);
      assertUnavailable(batch, await session.publish(batch, timeoutMs));
      left.push(...batch);
      await assertUnhealthy(session.publisher);
    });
    await recovered(session.publisher);
    await session.redeliver(left);
    const all = [...sent, ...left];
    const received = await session.arrived(all);
    if (session.publisher.capabilities.ordered) assertKeyOrder(received, inOrder(all));
  });
}

/** Small batches one after the other; from the first message on that is not taken, nothing of its key is. */
async function publishUntil(session: Session, begun: Promise<void>, size: number) {
  const taken: Message[] = [];
  const notTaken: Message[] = [];
  const held = new Set<string | null>();
  let over = false;
  const ended = begun.finally(() => {
    over = true;
  });
  // It is looked at when publishing has ended.
  ended.catch(() => {});
  for (let number = 1_000; !over; number += size) {
    const batch = mixedMessages(session, size, number).filter(({ key }) => key === null || !held.has(key));
    const outcomes = await session.publish(batch, timeoutMs);
    for (const [index, message] of batch.entries()) {
      const outcome = outcomes[index];
      assert.notEqual(outcome?.kind, 'rejected', outcome && describeOutcome(outcome));
      if (outcome?.kind === 'delivered') taken.push(message);
      else notTaken.push(message);
      if (outcome?.kind !== 'delivered') held.add(message.key);
    }
    await sleep(5);
  }
  await ended;
  return { taken, notTaken };
}

/** A message behind another of its key may be `released`: it was not sent. */
function assertUnavailable(batch: readonly Message[], outcomes: Awaited<ReturnType<Session['publish']>>): void {
  const tried = new Set<string>();
  for (const [index, { key }] of batch.entries()) {
    const outcome = outcomes[index];
    const kinds = key !== null && tried.has(key) ? /^(unavailable|released)$/ : /^unavailable$/;
    assert.match(outcome?.kind ?? '', kinds, `an outcome without a broker is ${outcome && describeOutcome(outcome)}`);
    if (key !== null) tried.add(key);
  }
}

async function assertUnhealthy(publisher: Publisher): Promise<void> {
  const asked = publisher.health(AbortSignal.timeout(timeoutMs)).then(
    () => 'resolved',
    () => 'rejected',
  );
  const answer = await within(timeoutMs + slackMs, `health() rejects within ${timeoutMs} ms`, asked);
  assert.equal(answer, 'rejected', 'health() must reject without a broker');
}

async function recovered(publisher: Publisher): Promise<void> {
  const deadline = performance.now() + recoveryMsMax;
  for (;;) {
    try {
      const asked = publisher.health(AbortSignal.timeout(timeoutMs));
      return await within(timeoutMs + slackMs, 'health() answers', asked);
    } catch (cause) {
      if (performance.now() > deadline) {
        throw new Error(`health() still rejects ${recoveryMsMax} ms after the broker came back: ${cause}`, { cause });
      }
      await sleep(100);
    }
  }
}

async function checkConnect(harness: PublisherHarness, disturbance: Disturbance): Promise<void> {
  await withPublisher(harness, async (publisher) => {
    await during(disturbance, async () => {
      await disturbance.begin();
      const connecting = publisher.connect(AbortSignal.timeout(timeoutMs)).then(
        () => undefined,
        (error: unknown) => error,
      );
      const error = await within(timeoutMs + slackMs, `connect() rejects within ${timeoutMs} ms`, connecting);
      assert.ok(error !== undefined, 'connect() must reject without a broker');
      const { code } = error as { code?: unknown };
      const refused: ErrorCode = 'POSTCOMMIT_E_DESTINATION_REFUSED';
      assert.ok(
        code !== refused,
        `an unreachable broker is not a refusal, so the relay must start all the same: ${error}`,
      );
    });
    await recoverConnection(publisher);
  });
}

/** The relay starts without the broker, and goes on with the same publisher. */
async function recoverConnection(publisher: Publisher): Promise<void> {
  const deadline = performance.now() + recoveryMsMax;
  for (;;) {
    try {
      return await publisher.connect(AbortSignal.timeout(patienceMs));
    } catch (cause) {
      if (performance.now() > deadline) throw new Error(`connect() still fails: ${cause}`, { cause });
      await sleep(100);
    }
  }
}

async function checkClose(harness: PublisherHarness, disturbance: Disturbance): Promise<void> {
  await withSession(harness, async ({ publisher }) => {
    await during(disturbance, async () => {
      await disturbance.begin();
      await within(closeMsMax, 'close() resolves', publisher.close());
    });
  });
}

/** Messages were sent in rounds, and what failed was sent again later; their numbers tell the order. */
function inOrder(messages: readonly Message[]): Message[] {
  const numberOf = ({ body }: Message) => (JSON.parse(String(body)) as { number: number }).number;
  return messages.toSorted((a, b) => numberOf(a) - numberOf(b));
}
