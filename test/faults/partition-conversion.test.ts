import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { seededRandom } from '../support/random.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

/** What any business transaction may be held up: a moment. Generous, as this machine may be busy with other tests. */
const momentMs = 2_000;

/** Emits one after the other until it is over, and notes how long the slowest took. */
class Writer {
  count = 0;
  longestMs = 0;
  readonly #emit: (n: number) => Promise<unknown>;

  constructor(emit: (n: number) => Promise<unknown>) {
    this.#emit = emit;
  }

  async run(over: () => boolean, pauseMs: () => number): Promise<void> {
    while (!over()) {
      const startedAt = performance.now();
      await this.#emit(this.count);
      this.longestMs = Math.max(this.longestMs, performance.now() - startedAt);
      this.count++;
      await sleep(pauseMs());
    }
  }
}

/** Every way to emit, each for aggregates of its own: a plain INSERT takes no lock, so its writer must be alone. */
function writersOf(scenario: RelayScenario): Writer[] {
  const { db } = scenario;
  const outbox = createOutbox({ db: fromPg(db.pool), notify: true });
  return [
    new Writer((n) => scenario.emit([{ aggregateId: `shared${n % 3}` }])),
    new Writer((n) => scenario.emit(Array.from({ length: 4 }, (_, i) => ({ aggregateId: `shared${(n + i) % 3}` })))),
    new Writer(async () => {
      const client = await db.pool.connect();
      try {
        await client.query('begin');
        await outbox.emit(client, { type: 'scripted', aggregate: ['thing', 'own'], payload: null });
        await client.query('commit');
      } finally {
        client.release();
      }
    }),
    new Writer(() =>
      db.query(`insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
                values ('thing', 'plain', 'scripted', 'null')`),
    ),
    new Writer(() => db.query(`select postcommit.emit('scripted', 'thing', 'sql', 'null')`)),
  ];
}

describe('converting an outbox that is at work', () => {
  test(
    'loses nothing, keeps the order, and holds no writer up for longer than a moment',
    withScenario(async (scenario) => {
      const random = seededRandom();
      const { db } = scenario;
      await scenario.relay('one', { batchSizeMax: 20, pollIntervalMs: 100 });
      await scenario.relay('two', { batchSizeMax: 50, pollIntervalMs: 100 });
      const writers = writersOf(scenario);
      let writing = true;
      const all = Promise.all(
        writers.map((writer) =>
          writer.run(
            () => !writing,
            () => random.integer(0, 8),
          ),
        ),
      );
      const further = async (events: number) => {
        const goals = writers.map(({ count }) => count + events);
        const reached = () => writers.every(({ count }, i) => count >= (goals[i] as number));
        await Promise.race([all, until(reached, { timeoutMs: 60_000, what: `${events} more events of each writer` })]);
      };
      await further(30);
      const { admin } = createOutbox({ db: fromPg(db.pool), notify: false });
      expect(await admin.partitions.convert('day')).toMatchObject({ converted: true, current: 1 });
      await further(30);
      for (const opened of [2, 3]) {
        expect(await admin.partitions.rotate()).toMatchObject({ opened });
        await further(10);
      }
      writing = false;
      await all;
      await scenario.drained(60_000);

      const longestMs = Math.max(...writers.map((writer) => writer.longestMs));
      console.info(`longest commit: ${longestMs.toFixed(0)} ms`);
      expect(longestMs).toBeLessThan(momentMs);
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], overlaps: [] });
      const [one, four, ...others] = writers.map(({ count }) => count);
      const emitted = (one as number) + 4 * (four as number) + others.reduce((sum, count) => sum + count, 0);
      expect(await scenario.expected()).toHaveLength(emitted);
      const { partitions, default: rest } = await admin.partitions.list();
      expect(partitions.slice(0, 4).map(({ state }) => state)).toEqual(['closed', 'closed', 'closed', 'open']);
      expect(partitions.slice(0, 4).every(({ events }) => events > 0)).toBe(true);
      expect(rest?.events).toBe(0);
      const unproven = await db.query(`select seq from postcommit.outbox_status where status <> 'SENT'`);
      expect(unproven).toEqual([]);
    }),
    120_000,
  );

  test(
    'gives way to a transaction that stays open, names it, and works when that has ended',
    withScenario(async (scenario) => {
      const { db } = scenario;
      const { admin } = createOutbox({ db: fromPg(db.pool), notify: false });
      await scenario.emitLine('a', 3);
      const open = await db.pool.connect();
      await open.query(`begin; set application_name = 'nightly report'`);
      await open.query(`select postcommit.emit('scripted', 'thing', 'open', 'null')`);
      const writer = new Writer(() => scenario.emitLine('b', 1));
      let writing = true;
      const written = writer.run(
        () => !writing,
        () => 5,
      );
      const refused = await admin.partitions.convert('day', { patienceMs: 1_500 }).catch((error: unknown) => error);
      expect(refused).toMatchObject({ code: 'POSTCOMMIT_E_LOG_IN_USE' });
      expect((refused as Error).message).toMatch(/Process \d+ \(.*nightly report, idle in transaction\)/);
      // Each attempt holds writers up for as long as it waits for the lock, and then they have the log again.
      expect(writer.longestMs).toBeLessThan(momentMs);
      expect(writer.count).toBeGreaterThan(5);
      expect((await admin.partitions.list()).unit).toBe('none');

      const converting = admin.partitions.convert('day', { patienceMs: 30_000 });
      const waits = `select from pg_locks where mode = 'AccessExclusiveLock' and not granted
        and relation = 'postcommit.outbox_events'::regclass`;
      await until(async () => (await db.query(waits)).length > 0, { what: 'the conversion waits for the log' });
      await open.query('commit');
      open.release();
      expect(await converting).toMatchObject({ converted: true });
      writing = false;
      await written;
      await scenario.relay('one');
      await scenario.drained();
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [] });
    }),
    60_000,
  );

  test(
    'continues where it was interrupted',
    withScenario(async (scenario) => {
      const { db } = scenario;
      const { admin } = createOutbox({ db: fromPg(db.pool), notify: false });
      await scenario.emitLine('a', 3);
      const steps = ['constrain_log()', 'validate_log()', `partition_log('day')`];
      for (const [done, step] of steps.entries()) {
        // The session ends with its last step in progress: nothing of that step is kept.
        const client = await db.pool.connect();
        await client.query('begin');
        await client.query(`select postcommit.${step}`);
        const [{ pid }] = (await client.query('select pg_backend_pid() as pid')).rows;
        await db.query('select pg_terminate_backend($1)', [pid]);
        client.release(true);
        await until(async () => (await db.query('select from pg_stat_activity where pid = $1', [pid])).length === 0, {
          what: 'the session has ended',
        });
        await scenario.emitLine('a', 1);
        await db.query(`select postcommit.${steps[done]}`);
        await scenario.emitLine('a', 1);
      }
      expect(await admin.partitions.convert('day')).toMatchObject({ converted: false });
      await scenario.relay('one');
      await scenario.drained();
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], duplicates: 0 });
    }),
    60_000,
  );
});
