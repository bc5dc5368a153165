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
      expect(letter.error).toMatch(/It was the only event in flight, 3 times/);
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
      await scenario.db.query('update postcommit.outbox_queue set takeovers = 4');
      const relay = await scenario.relay('one', { retry: { delaysMs: [60_000] } });
      await until(() => relay.stats().failed === 1, { what: 'it has failed' });
      expect(await scenario.db.query('select attempts, takeovers from postcommit.outbox_queue')).toEqual([
        { attempts: 1, takeovers: 0 },
      ]);
    }),
  );

  test(
    'a process that dies again and again for another reason makes no dead letter, and all is delivered once it lives',
    withScenario(async (scenario) => {
      await scenario.emit(Array.from({ length: 20 }, (_, n) => ({ aggregateId: `a${n}`, script: { workMs: 100 } })));
      for (let life = 0; life < 7; life++) {
        const relay = await scenario.child(`life ${life}`, { leaseMs: 500 });
        await relay.next(({ event }) => event === 'claimed');
        relay.kill('SIGKILL');
        await relay.exited;
      }
      await scenario.relay('healthy', { leaseMs: 500, retry: { delaysMs: [10, 10, 10] } });
      await scenario.drained();
      expect(await scenario.db.query('select * from postcommit.outbox_dead_letters')).toEqual([]);
    }),
    150_000,
  );

  test(
    'suspects are delivered several at a time, and a prime suspect with nothing else under way',
    withScenario(async (scenario) => {
      const suspects = await scenario.emit(
        Array.from({ length: 10 }, (_, n) => ({ aggregateId: `suspect ${n}`, script: { workMs: 50 } })),
      );
      await scenario.db.query('update postcommit.outbox_queue set takeovers = 2');
      const primes = await scenario.emit(
        Array.from({ length: 3 }, (_, n) => ({ aggregateId: `prime ${n}`, script: { workMs: 50 } })),
      );
      await scenario.db.query('update postcommit.outbox_queue set takeovers = 4 where takeovers = 0');
      await scenario.emit(Array.from({ length: 30 }, (_, n) => ({ aggregateId: `a${n}`, script: { workMs: 20 } })));
      await scenario.relay('one');
      await scenario.drained();
      const underWay = new Set<string>();
      let most = 0;
      for (const { phase, id } of scenario.journal.read()) {
        if (phase !== 'begin') underWay.delete(id);
        else underWay.add(id);
        most = Math.max(most, [...underWay].filter((each) => suspects.includes(each)).length);
        if (primes.some((each) => underWay.has(each))) expect(underWay.size).toBe(1);
      }
      expect(most).toBeGreaterThan(1);
    }),
  );

  test(
    'a prime suspect steps aside when something takes long, and the relay continues',
    withScenario(async (scenario) => {
      await scenario.emitLine('slow', 1, { hangIn: 'one' });
      const relay = await scenario.relay('one', { deliverTimeoutMs: 60_000, stopTimeoutMs: 0 });
      await until(() => relay.stats().inFlight === 1, { what: 'the slow one is under way' });
      const [prime] = await scenario.emit([{ aggregateId: 'prime', availableAt: new Date(Date.now() + 3_600_000) }]);
      await scenario.db.query(
        'update postcommit.outbox_queue set takeovers = 4, available_at = null where claimed_by is null',
      );
      await until(
        async () =>
          (await scenario.db.query(`select from postcommit.outbox_queue where takeovers = 4 and available_at > now()`))
            .length === 1,
        { timeoutMs: 20_000, what: 'the suspect has stepped aside' },
      );
      await scenario.emitLine('other', 3);
      await until(() => relay.stats().delivered === 3, { what: 'others are delivered' });
      expect(scenario.journal.read().some(({ id }) => id === prime)).toBe(false);
    }),
  );
});
