import { describe, expect, test } from 'vitest';
import type { Handler } from '../../src/index.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { deferred, until } from '../support/wait.ts';

const adminOf = (scenario: RelayScenario) => createOutbox({ db: fromPg(scenario.db.pool) }).admin;
const long = { deliverTimeoutMs: 600_000, stopTimeoutMs: 0 };

const cancellations = async (scenario: RelayScenario) =>
  (await scenario.db.query('select count(*)::integer as n from postcommit.outbox_cancellations'))[0].n as number;

describe('an event that is cancelled', () => {
  test(
    'while the answer of its claim is under way is not delivered',
    withScenario(async (scenario) => {
      const [id = ''] = await scenario.emitLine('k', 2);
      const proxy = await scenario.proxy();
      const calls: string[] = [];
      const held = proxy.holdAnswer({ connection: 'claims', text: /claim_many/ });
      const relay = scenario.idleRelay('one', {
        ...long,
        leaseMs: 1_500, // It looks with each heartbeat.
        connectionString: proxy.url(scenario.db.url),
        handlers: { scripted: { note: ({ seq }) => void calls.push(seq) } },
      });
      await relay.start();
      await held.caught;
      expect(await adminOf(scenario).cancel({ ids: [id] }, {})).toMatchObject({ count: 1, running: 1 });
      // The relay has looked for cancelled events since then: it reads them before it ends any of them.
      const looks = () => proxy.count({ text: /from "postcommit".outbox_cancellations/ });
      const before = looks();
      await until(() => looks() >= before + 2, { what: 'the relay has looked for cancelled events again' });
      expect(await cancellations(scenario)).toBe(1);
      held.release();
      await scenario.drained();
      await until(() => relay.stats().delivered === 1, { what: 'the next event is delivered' });
      expect(calls).toEqual(['2']);
      await until(async () => (await cancellations(scenario)) === 0, { what: 'the relay has reported its end' });
      expect(relay.stats()).toMatchObject({ cancelled: 1, fenced: 0 });
    }),
    60_000,
  );

  test.each([
    { where: 'in the buffer of a full queue', queues: { default: 10, reports: 1 }, limit: {}, queue: 'reports' },
    { where: 'for a handler at its limit', queues: { default: 10 }, limit: { inFlightMax: 1 }, queue: 'default' },
  ])(
    'while it waits $where does not hold its aggregate up',
    ({ queues, limit, queue }) =>
      withScenario(async (scenario) => {
        const gate = deferred();
        const calls: string[] = [];
        const handle: Handler = ({ aggregate }) => {
          calls.push(`report ${aggregate.id}`);
          return gate.promise;
        };
        const handlers = {
          report: { handle: { handle, ...limit } },
          mail: { send: ({ aggregate }: { aggregate: { id: string } }) => void calls.push(`mail ${aggregate.id}`) },
        };
        const relay = await scenario.relay('one', { ...long, queues, handlers });
        await scenario.emit([{ type: 'report', aggregateId: 'x', queue }]);
        await until(() => calls.length === 1, { what: 'no other report can start' });
        const [id = ''] = await scenario.emit([
          { type: 'report', aggregateId: 'k', queue },
          { type: 'mail', aggregateId: 'k' },
          { type: 'report', aggregateId: 'l', queue },
        ]);
        await until(() => relay.stats().waiting >= 2, { what: 'the relay has claimed both events of k' });
        expect(await adminOf(scenario).cancel({ ids: [id] }, {})).toMatchObject({ count: 1, running: 1 });
        await until(() => calls.includes('mail k'), { timeoutMs: 5_000, what: 'its aggregate continues' });
        expect(calls).toEqual(['report x', 'mail k']);
        gate.resolve();
        await scenario.drained();
        expect(calls).toEqual(['report x', 'mail k', 'report l']);
        await until(() => relay.stats().delivered === 3, { what: 'all results are written' });
        expect(relay.stats()).toMatchObject({ cancelled: 1, fenced: 0, inFlight: 0, waiting: 0 });
        expect(await cancellations(scenario)).toBe(0);
      })(),
    60_000,
  );
});
