import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { close, openSession, patienceMs, slackMs, within, withPublisher, withSession } from './conformance-session.ts';
import type { ConformanceCheck, PublisherHarness } from './publisher-conformance.ts';

const flushMsMax = 10_000;
const callsUnderWayMax = 8;

/** Connecting, closing, and signals. */
export function lifecycleChecks(harness: PublisherHarness): ConformanceCheck[] {
  return [
    {
      name: 'health() resolves while the broker runs',
      run: () =>
        withSession(harness, async ({ publisher }) => {
          const asked = publisher.health(AbortSignal.timeout(patienceMs));
          await within(patienceMs + slackMs, 'health() resolves', asked);
        }),
    },
    { name: 'close() flushes what is in flight', run: () => checkFlush(harness) },
    {
      name: 'close() can be called before connect(), twice, and while it closes',
      run: () =>
        withPublisher(harness, async (publisher) => {
          await close(publisher);
          await publisher.connect(AbortSignal.timeout(patienceMs));
          await Promise.all([close(publisher), close(publisher)]);
          await close(publisher);
        }),
    },
    { name: 'it can be connected again after close()', run: () => checkReconnect(harness) },
    { name: 'close() leaves no connection open', run: () => checkNothingLeft(harness) },
    {
      name: 'a signal that is aborted already is answered at once',
      run: () =>
        withSession(harness, async (session) => {
          const batch = [session.message('order:1', 1), session.message('order:2', 2)].slice(
            0,
            session.publisher.capabilities.batchSizeMax,
          );
          const call = session.publisher.publish(batch, AbortSignal.abort());
          const outcomes = await within(slackMs, 'publish() answers', call);
          assert.equal(outcomes.length, batch.length, 'the number of outcomes');
          for (const { kind } of outcomes)
            assert.match(kind, /^(delivered|unavailable)$/, 'an outcome after the signal');
          await session.redeliver(batch);
          await session.arrived(batch);
        }),
    },
  ];
}

async function checkFlush(harness: PublisherHarness): Promise<void> {
  await withSession(harness, async (session) => {
    const { batchesInFlightMax, batchSizeMax } = session.publisher.capabilities;
    const calls = Array.from({ length: Math.min(batchesInFlightMax, callsUnderWayMax) }, (_, call) =>
      Array.from({ length: Math.min(batchSizeMax, 50) }, (_, n) => session.message(`order:${call}.${n}`, n)),
    );
    const underWay = calls.map((batch) => session.publish(batch, flushMsMax));
    const closing = within(flushMsMax + slackMs, 'close() resolves', session.publisher.close());
    const outcomes = (await Promise.all(underWay)).flat();
    await closing;
    const failed = outcomes.find(({ kind }) => kind !== 'delivered');
    assert.deepEqual(failed ?? { kind: 'delivered' }, { kind: 'delivered' }, 'what was in flight is delivered');
    await session.arrived(calls.flat());
  });
}

async function checkReconnect(harness: PublisherHarness): Promise<void> {
  await withSession(harness, async (session) => {
    const messages = [1, 2, 3].map((number) => session.message('order:1', number));
    for (const message of messages) {
      await session.publishAll([message]);
      await close(session.publisher);
      await session.publisher.connect(AbortSignal.timeout(patienceMs));
    }
    await session.arrived(messages);
  });
}

async function checkNothingLeft(harness: PublisherHarness): Promise<void> {
  const topic = await harness.createTopic();
  const before = openSockets();
  await withPublisher(harness, async (publisher) => {
    await publisher.connect(AbortSignal.timeout(patienceMs));
    const session = openSession(harness, publisher, topic);
    await session.publishAll([session.message('order:1', 1)]);
    await publisher.health(AbortSignal.timeout(patienceMs));
  });
  // The other end of a connection may be in this process, and closes a moment later.
  for (let waited = 0; openSockets() > before; waited++) {
    assert.ok(waited < 100, `${openSockets() - before} sockets are still open: they would keep the process alive`);
    await sleep(50);
  }
}

function openSockets(): number {
  return process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap' || name === 'TLSWrap').length;
}
