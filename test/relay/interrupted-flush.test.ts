import { describe, expect, test } from 'vitest';
import type { Handler } from '../../src/index.ts';
import { statement } from '../support/postgres-proxy.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { RelayScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until, within } from '../support/wait.ts';

// One flush has both: event 1 of the key is shelved, because its destination is paused after its handler ran, and event 2
// is settled. The relay loses its connection while it writes them down, and never comes back.
describe.each(postgresVersions)('a flush that is interrupted, on PostgreSQL %i', (version) => {
  const serverUrl = serverUrlOf(version);

  async function withDatabase(work: (scenario: RelayScenario) => Promise<void>): Promise<void> {
    const scenario = await RelayScenario.create({ serverUrl });
    try {
      await work(scenario);
    } finally {
      await scenario.close();
    }
  }

  function options(seen: string[]) {
    const note: Handler = (event) => void seen.push(event.seq);
    return {
      handlers: { shelved: { note }, settled: { note } },
      destinations: { events: new ScriptedPublisher() },
      route: ({ type }: { type: string }) => (type === 'shelved' ? { to: 'events' } : null),
      leaseMs: 1_000,
      pollIntervalMs: 50,
    };
  }

  async function pausedScene(scenario: RelayScenario): Promise<void> {
    await scenario.db.query(
      `insert into postcommit.outbox_destinations (destination, paused_at) values ('events', now())`,
    );
    await scenario.emit([
      { aggregateId: 'a', type: 'shelved' },
      { aggregateId: 'a', type: 'settled' },
    ]);
  }

  test('leaves no event unwritten behind which a later one of its key is settled', () =>
    withDatabase(async (scenario) => {
      await pausedScene(scenario);
      const proxy = await scenario.proxy();
      const first: string[] = [];
      const failing = proxy.holdRequest({ connection: 'results', text: statement.fail });
      const relay = await scenario.relay('first', {
        ...options(first),
        connectionString: proxy.url(scenario.db.url),
        stopTimeoutMs: 0,
      });
      await within(failing.caught, { what: 'the shelving is about to be written' });
      proxy.refuse();
      proxy.cut();
      await relay.stop();
      expect(first).toEqual(['1', '2']);

      const second: string[] = [];
      await scenario.relay('second', options(second));
      await until(async () => (await scenario.db.query('select from postcommit.outbox_shelf')).length === 1, {
        what: 'the first event is on the shelf',
        timeoutMs: 20_000,
      });
      await scenario.drained();
      // Whatever is delivered again ends with the later event: a handler never sees 1, 2, 1.
      expect([...first, ...second].join()).toBe('1,2,1,2');
    }));

  test('writes both when only the answer is lost, and neither twice', () =>
    withDatabase(async (scenario) => {
      await pausedScene(scenario);
      const proxy = await scenario.proxy();
      const seen: string[] = [];
      const answer = proxy.holdAnswer({ connection: 'results', text: statement.fail });
      const relay = await scenario.relay('first', { ...options(seen), connectionString: proxy.url(scenario.db.url) });
      await within(answer.caught, { what: 'both are written' });
      await scenario.drained(); // The functions commit together, in the transaction of the statement.
      answer.cut();
      await until(() => relay.stats().unavailable === 1 && relay.stats().delivered === 1, { what: 'the relay knows' });
      expect(relay.stats()).toMatchObject({ fenced: 0 });
      expect(await scenario.db.query('select seq::text, done from postcommit.outbox_shelf')).toEqual([
        { seq: '1', done: ['note'] },
      ]);
      expect(await scenario.db.query('select seqs::text, targets from postcommit.outbox_deliveries')).toEqual([
        { seqs: '{[2,3)}', targets: ['note'] },
      ]);
      expect(seen).toEqual(['1', '2']);
    }));
});
