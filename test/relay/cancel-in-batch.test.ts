import { describe, expect, test } from 'vitest';
import type { BatchHandler } from '../../src/index.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { deferred, until, within } from '../support/wait.ts';

const adminOf = (scenario: RelayScenario) => createOutbox({ db: fromPg(scenario.db.pool) }).admin;
const long = { deliverTimeoutMs: 600_000, stopTimeoutMs: 0 };

const cancellations = async (scenario: RelayScenario) =>
  (await scenario.db.query('select count(*)::integer as n from postcommit.outbox_cancellations'))[0].n as number;

describe('an event that is cancelled in a batch', () => {
  const run = async (scenario: RelayScenario, which: readonly number[]) => {
    const gate = deferred();
    const told = deferred();
    const calls: string[][] = [];
    const bulk: BatchHandler = {
      handleBatch: async (events, { signal }) => {
        calls.push(events.map(({ aggregate }) => aggregate.id));
        signal.addEventListener('abort', () => told.resolve());
        await Promise.race([gate.promise, told.promise]);
      },
      inFlightMax: 1,
      batchSizeMax: 3,
      batchWaitMs: 60_000,
    };
    const relay = await scenario.relay('one', { ...long, leaseMs: 1_500, handlers: { scripted: { bulk } } });
    const ids = await scenario.emit(['a', 'b', 'c'].map((aggregateId) => ({ aggregateId })));
    await until(() => calls.length === 1, { what: 'the batch is under way' });
    await adminOf(scenario).cancel({ ids: which.map((n) => ids[n] ?? '') }, {});
    return { relay, calls, told, gate };
  };

  test.each([0, 1, 2])('as number %i does not stop the others, and its result does not count', (which) =>
    withScenario(async (scenario) => {
      const { relay, calls, told, gate } = await run(scenario, [which]);
      const heartbeats = async () =>
        (await scenario.db.query('select lease_until::text from postcommit.outbox_relays'))[0].lease_until as string;
      // The relay looks after the notification, and with each heartbeat.
      for (let beats = 0, last = await heartbeats(); beats < 3; beats++) {
        last = await until(async () => (await heartbeats()) !== last && (await heartbeats()), { what: 'a heartbeat' });
      }
      expect(told.settled).toBe(false);
      gate.resolve();
      await scenario.drained();
      await until(() => relay.stats().delivered === 2, { what: 'the others are delivered' });
      await until(async () => (await cancellations(scenario)) === 0, { what: 'the relay has reported its end' });
      expect(calls).toEqual([['a', 'b', 'c']]);
      expect(relay.stats()).toMatchObject({ delivered: 2, cancelled: 1, released: 0, fenced: 0 });
    })(),
  );

  test(
    'with all others aborts the signal',
    withScenario(async (scenario) => {
      const { relay, calls, told } = await run(scenario, [0, 1, 2]);
      await within(told.promise, { what: 'the handler is told' });
      await until(() => relay.stats().cancelled === 3, { what: 'the relay is done with them' });
      expect(calls).toEqual([['a', 'b', 'c']]);
    }),
  );
});
