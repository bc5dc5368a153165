import { describe, expect, test } from 'vitest';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

describe('G7: an event that ends every process that delivers it', () => {
  test(
    'becomes a dead letter that says so, and everything that was claimed beside it is delivered',
    withScenario(async (scenario) => {
      await scenario.emitLine('killer', 1, { kill: true });
      await scenario.emitLine('killer', 2);
      await scenario.emit(Array.from({ length: 20 }, (_, n) => ({ aggregateId: `a${n}`, script: { workMs: 20 } })));
      const options = { leaseMs: 500, retry: { delaysMs: [10, 10, 10, 10, 10] } };
      const isOver = async () =>
        (await scenario.queued()) === 0 &&
        (await scenario.db.query('select from postcommit.outbox_dead_letters')).length > 0;
      let lives = 0;
      for (; lives < 12 && !(await isOver()); lives++) {
        const relay = await scenario.child(`life ${lives}`, options);
        let ended = false;
        void relay.exited.then(() => {
          ended = true;
        });
        await until(async () => ended || (await isOver()), { timeoutMs: 20_000, what: 'it has died, or all is done' });
      }
      expect(lives).toBeLessThanOrEqual(8);
      const [letter] = await scenario.db.query('select * from postcommit.outbox_dead_letters');
      expect(letter).toMatchObject({ seq: '1', reason: 'crashed', attempts: 3 });
      expect(letter.error).toMatch(/It was the only event being delivered, 3 times/);
      const failures = await scenario.db.query('select attempt, code from postcommit.outbox_failures order by attempt');
      expect(failures).toEqual([1, 2, 3].map((attempt) => ({ attempt, code: 'POSTCOMMIT_E_RELAY_ENDED' })));
      const killed = Array.from({ length: lives }, (_, n) => `life ${n}`);
      expect(await scenario.findings({ killed })).toMatchObject({ lost: [], orderViolations: [] });
    }),
    150_000,
  );

  test(
    'a suspect that fails by itself is none any more',
    withScenario(async (scenario) => {
      await scenario.emitLine('slow', 1, { failTimes: 1 });
      await scenario.db.query('update postcommit.outbox_queue set rescues = 4');
      const relay = await scenario.relay('one', { retry: { delaysMs: [60_000] } });
      await until(() => relay.stats().retried === 1, { what: 'it has failed' });
      expect(await scenario.db.query('select attempts, rescues from postcommit.outbox_queue')).toEqual([
        { attempts: 1, rescues: 0 },
      ]);
    }),
  );
});
