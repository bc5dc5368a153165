import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createOutbox, createRelay, type DeliveredEvent, fromPg, migrate, Reject } from '../../src/index.ts';
import { dropExpired } from '../../src/outbox/maintaining/drop-partition.ts';
import { createTestDatabase } from '../support/database.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait.ts';

const chaosMs = Number(process.env.CHAOS_MS ?? 6_000);

/**
 * Retention that keeps nothing, under writers, relays, and operators who replay, retry and discard: every moment at which
 * an event of a closed partition can come back into the queue.
 */
test('retention takes no event that is needed, whatever happens beside it', async () => {
  const random = seededRandom();
  const db = await createTestDatabase();
  await migrate({ connectionString: db.url, partitions: 'day' });
  const outbox = createOutbox({ db: fromPg(db.pool) });
  const { admin } = outbox;
  const delivered = new Set<string>();
  let healed = false;
  const work = (event: DeliveredEvent<{ poison: boolean }>) => {
    if (event.payload.poison && !healed) throw new Reject('poison');
    delivered.add(event.id);
  };
  const relays = ['one', 'two'].map((name) =>
    createRelay({ connectionString: db.url, name, pollIntervalMs: 100, maintenance: false, handlers: { x: { work } } }),
  );
  try {
    for (const relay of relays) await relay.start();
    const emitted: string[] = [];
    const endsAt = performance.now() + chaosMs;
    const repeatedly = async (pauseMs: number, step: () => Promise<unknown>, isOver = () => true) => {
      while (performance.now() < endsAt || !isOver()) {
        await step();
        await sleep(random.integer(0, pauseMs));
      }
    };
    const emit = async () => {
      const events = Array.from({ length: random.integer(1, 5) }, () => ({
        type: 'x',
        aggregate: ['a', random.integer(1, 20)] as const,
        payload: { poison: random.chance(0.05) },
      }));
      emitted.push(...(await outbox.transaction((_tx, send) => send(events))));
    };
    const operate = () =>
      random.pick([
        () => admin.replay({ all: true }),
        () => admin.retry({ all: true }),
        () => admin.list({ status: 'SENT' }),
      ])();
    let dropped = 0;
    const retain = async () => {
      await admin.partitions.rotate();
      dropped += (await dropExpired(db.pool, 'postcommit', { keepMs: 0 })).dropped.length;
    };
    // On a slow machine the replays keep every partition in use until the operators stop.
    const hasDropped = () => dropped > 0 || performance.now() > endsAt + 30_000;
    await Promise.all([
      repeatedly(10, emit),
      repeatedly(10, emit),
      repeatedly(200, operate),
      repeatedly(200, operate),
      repeatedly(60, retain, hasDropped),
      repeatedly(60, retain, hasDropped),
    ]);

    healed = true;
    // An event that a relay claims and does not find in the log becomes a dead letter again and again.
    const left = 'select from postcommit.outbox_queue union all select from postcommit.outbox_dead_letters';
    const nothingLeft = async () => {
      await admin.retry({ all: true });
      return (await db.query(left)).length === 0;
    };
    await until(nothingLeft, { timeoutMs: 30_000, what: 'all is delivered' });
    console.info(`${emitted.length} events, ${dropped} partitions dropped`);
    expect(dropped).toBeGreaterThan(0);
    expect(emitted.filter((id) => !delivered.has(id))).toEqual([]);
  } finally {
    await Promise.all(relays.map((relay) => relay.stop()));
    await db.close();
  }
}, 120_000);
