import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createOutbox, createRelay, fromPg } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { Gate } from '../support/gate.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { startStandbyPair } from '../support/standby.ts';
import { until } from '../support/wait.ts';

test('a promoted standby without the last events: handlers of these settle no new event that has the same seq', async () => {
  const pair = await startStandbyPair(18);
  const db = await createTestDatabase({ serverUrl: pair.primary.connectionString });
  const database = new URL(db.url).pathname.slice(1);
  const gates = { old: new Gate(), new: new Gate() };
  const count = 80;
  const begun = new Map<string, number>();
  const relay = createRelay({
    connectionString: pair.url(database),
    inFlightMax: 4 * count,
    retry: { delaysMs: [100] },
    handlers: {
      x: {
        see: async ({ id, aggregate }) => {
          const attempt = (begun.get(id) ?? 0) + 1;
          begun.set(id, attempt);
          await gates[aggregate.type as 'old' | 'new'].opened;
          if (aggregate.type === 'new' && attempt === 1) throw new Error('the first attempt fails');
        },
      },
    },
  });
  const pool = quietPool(pair.url(database, [pair.standby], ''));
  try {
    await relay.start();
    const emit = (on: typeof pool, aggregateType: string) =>
      createOutbox({ db: fromPg(on), notify: false }).transaction((_tx, emit) =>
        emit(
          Array.from({ length: count }, (_, n) => ({
            type: 'x',
            aggregate: [aggregateType, `${n}`] as const,
            payload: null,
          })),
        ),
      );
    await pair.caughtUp();
    await pair.cutOff();
    const old = await emit(db.pool, 'old');
    await until(() => old.every((id) => begun.has(id)), { what: 'handlers of the old events are at work' });
    await pair.primary.stop();
    await pair.promote();
    await until(() => relay.stats().connected, {
      timeoutMs: 30_000,
      what: 'the relay is connected to the new primary',
    });
    const ids = await emit(pool, 'new');
    await until(() => ids.every((id) => begun.has(id)), { timeoutMs: 30_000, what: 'the new events are at work' });
    gates.old.open();
    await until(() => relay.stats().inFlight === count, { what: 'handlers of the old events have ended' });
    await sleep(500); // Time to write their results, which takes milliseconds.
    gates.new.open();
    const queued = async () => (await pool.query('select from postcommit.outbox_queue')).rowCount;
    await until(async () => (await queued()) === 0, { timeoutMs: 30_000, what: 'the queue is empty' });
    expect(ids.map((id) => begun.get(id))).toEqual(ids.map(() => 2));
  } finally {
    for (const gate of Object.values(gates)) gate.open();
    await relay.stop();
    await Promise.all([pool.end(), db.pool.end()]);
    await pair.close();
  }
});
