import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

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
});
