import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { nextEvent, until } from '../support/wait.ts';

const dayMs = 86_400_000;
const options = { leaseMs: 3_000, pollIntervalMs: 100 };
const everyTask = ['analyze', 'drop', 'processed', 'prune', 'relays', 'rotate'];

interface Run {
  task: string;
  changed: number;
  note?: string;
}

/** Two days old: delivered events, processed events, and more relays that ended than are kept. */
async function fill(scenario: RelayScenario, count = 2_500): Promise<void> {
  const { db } = scenario;
  await db.query(
    `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
     select 'thing', n::text, 'scripted', 'null', now() - interval '2 days' from generate_series(1, $1) n`,
    [count],
  );
  await db.query(`
    with gone as (delete from postcommit.outbox_queue returning seq)
    insert into postcommit.outbox_deliveries (relay, attempts, targets, seqs)
    select 1, 1, '{t}', range_agg(int8range(seq, seq, '[]')) from gone`);
  await db.query(
    `insert into postcommit.processed_events (consumer_name, event_id, processed_at)
     select 'mail', gen_random_uuid(), now() - interval '2 days' + n * interval '1 millisecond'
       from generate_series(1, $1) n`,
    [count],
  );
  await db.query(
    `insert into postcommit.processed_events (consumer_name, event_id) values ('mail', gen_random_uuid())`,
  );
  await db.query(
    `insert into postcommit.outbox_relays (token, name, host, pid, lease_until, ended_at, ended_as)
     select n, 'old', 'h', 1, now() - interval '2 days', now() - interval '2 days', 'stopped'
       from generate_series(1, 1010) n`,
  );
}

async function rows(scenario: RelayScenario, table: string): Promise<number> {
  return (await scenario.db.query(`select count(*)::integer as n from postcommit.${table}`))[0].n;
}

/** Until a run of the task fits. */
async function untilRun(scenario: RelayScenario, task: string, condition: string): Promise<Run & { error: string }> {
  const sql = `select * from postcommit.outbox_maintenance where task = $1 and ${condition}`;
  return until(async () => (await scenario.db.query(sql, [task]))[0], {
    what: `${task}: ${condition}`,
    timeoutMs: 20_000,
  });
}

describe('the leader', () => {
  test(
    'removes what is old, and reports it in the database, as lifecycle events, on channels, and in stats()',
    withScenario(async (scenario) => {
      await fill(scenario);
      const told = new Map<string, Run>();
      const published: Run[] = [];
      const onMessage = (message: unknown) => published.push(message as Run);
      subscribe('postcommit:relay:maintained', onMessage);
      const relay = scenario.idleRelay('one', {
        ...options,
        maintenance: { keepEventsMs: dayMs, keepProcessedMs: dayMs },
      });
      relay.on('maintained', (run) => told.set(run.task, run));
      await relay.start();
      await until(() => told.size === everyTask.length, { what: 'every task was run', timeoutMs: 20_000 });
      unsubscribe('postcommit:relay:maintained', onMessage);

      expect(told.get('prune')).toMatchObject({ changed: 2_500 });
      expect(told.get('processed')).toMatchObject({ changed: 2_500 });
      expect(told.get('relays')).toMatchObject({ changed: 10 });
      expect(await rows(scenario, 'outbox_events')).toBe(0);
      expect(await rows(scenario, 'outbox_deliveries')).toBe(0);
      expect(await rows(scenario, 'processed_events')).toBe(1);
      expect(published.map(({ task }) => task).sort()).toEqual(expect.arrayContaining(everyTask));
      const { maintenance, leading } = relay.stats();
      expect(leading).toBe(true);
      expect(maintenance.map(({ task }) => task).sort()).toEqual(everyTask);

      const { admin } = createOutbox({ db: fromPg(scenario.db.pool) });
      const info = await admin.maintenance();
      expect(info.leader).toMatchObject({ name: 'one', epoch: '1', since: expect.any(Date) });
      expect(info.tasks.map(({ task }) => task)).toEqual(everyTask);
      expect(info.tasks.find(({ task }) => task === 'prune')).toMatchObject({
        changed: 2_500,
        failures: 0,
        ranAt: expect.any(Date),
        succeededAt: expect.any(Date),
        keepMs: dayMs,
      });
      const keeping = info.tasks.filter(({ keepMs }) => keepMs !== undefined).map(({ task }) => task);
      expect(keeping).toEqual(['drop', 'processed', 'prune']);
      // Its connection is there for a turn only.
      const open = `select from pg_stat_activity where datname = current_database() and application_name like '%maintenance%'`;
      await until(async () => (await scenario.db.query(open)).length === 0, { what: 'the connection is closed' });
    }),
  );

  test(
    'keeps for ever what it is told to, and skips what it is told to',
    withScenario(async (scenario) => {
      await fill(scenario, 10);
      const keep = { keepEventsMs: Number.POSITIVE_INFINITY, keepProcessedMs: dayMs, skip: ['relays'] as const };
      await scenario.relay('one', { ...options, maintenance: keep });
      await untilRun(scenario, 'analyze', 'error is null');
      expect(await rows(scenario, 'outbox_events')).toBe(10);
      const { tasks } = await createOutbox({ db: fromPg(scenario.db.pool) }).admin.maintenance();
      expect(tasks.find(({ task }) => task === 'prune')?.keepMs).toBe(Number.POSITIVE_INFINITY);
      expect(await rows(scenario, 'processed_events')).toBe(1);
      expect(await scenario.db.query(`select from postcommit.outbox_maintenance where task = 'relays'`)).toEqual([]);
      expect(await rows(scenario, 'outbox_relays')).toBeGreaterThan(1_000);
    }),
  );

  test(
    'continues with the other tasks when one fails, says why, and tries it again',
    withScenario(async (scenario) => {
      await fill(scenario, 10);
      await scenario.db.query(`
        create function public.refuse() returns trigger language plpgsql as $f$ begin raise 'not today'; end $f$;
        create trigger refuse before delete on postcommit.outbox_events for each row execute function public.refuse()`);
      const maintenance = { keepEventsMs: dayMs, keepProcessedMs: dayMs, intervalMs: 200 };
      const relay = scenario.idleRelay('one', { ...options, maintenance });
      const failed = nextEvent<{ task: string; error: string }>(relay, 'maintenanceFailed', 20_000);
      await relay.start();
      expect(await failed).toMatchObject({ task: 'prune', error: expect.stringContaining('not today') });
      const { error } = await untilRun(scenario, 'prune', 'failures >= 2');
      expect(error).toContain('not today');
      await untilRun(scenario, 'processed', 'error is null');
      expect(await rows(scenario, 'processed_events')).toBe(1);
      expect(await rows(scenario, 'outbox_events')).toBe(10);

      await scenario.db.query('drop trigger refuse on postcommit.outbox_events');
      await untilRun(scenario, 'prune', 'failures = 0 and error is null');
      expect(await rows(scenario, 'outbox_events')).toBe(0);
    }),
  );

  test(
    'keeps what is undelivered however short the retention, and removes it in a later cycle',
    withScenario(async (scenario) => {
      await fill(scenario, 10);
      await scenario.db.query(`insert into postcommit.outbox_queue (seq, available_at)
                               select min(seq), now() + interval '1 hour' from postcommit.outbox_events`);
      await scenario.relay('one', { ...options, maintenance: { keepEventsMs: 0, intervalMs: 100 } });
      const { note } = await untilRun(scenario, 'prune', 'note is not null');
      expect(note).toMatch(/1 undelivered/);
      expect(await rows(scenario, 'outbox_events')).toBe(1);
      await untilRun(scenario, 'prune', 'note is null'); // Passed over, and not looked at again.

      await scenario.db.query('update postcommit.outbox_queue set available_at = null');
      await scenario.drained();
      const atCursor = `cursor_seq > 0 and ran_at > (select max(delivered_at) from postcommit.outbox_deliveries)`;
      await untilRun(scenario, 'prune', atCursor);
      expect(await rows(scenario, 'outbox_events')).toBe(1);
      await scenario.db.query(`update postcommit.outbox_maintenance set cycle_at = now() - interval '2 hours'`);
      await until(async () => (await rows(scenario, 'outbox_events')) === 0, { what: 'it is gone' });
      await until(async () => (await rows(scenario, 'outbox_deliveries')) === 0, { what: 'its record too' });
    }),
  );

  test(
    'stops in the midst of it when the relay is stopped',
    withScenario(async (scenario) => {
      await fill(scenario, 30_000);
      const relay = await scenario.relay('one', { ...options, maintenance: { keepEventsMs: dayMs } });
      await until(async () => (await rows(scenario, 'outbox_events')) < 30_000, { what: 'it has begun' });
      const began = performance.now();
      await relay.stop();
      expect(performance.now() - began).toBeLessThan(5_000);
      const left = await rows(scenario, 'outbox_events');
      expect(left).toBeGreaterThan(0);
      // The next one continues where it was.
      await scenario.relay('two', { ...options, maintenance: { keepEventsMs: dayMs, intervalMs: 100 } });
      await until(async () => (await rows(scenario, 'outbox_events')) === 0, {
        what: 'all is gone',
        timeoutMs: 20_000,
      });
    }),
  );
});

describe('a relay that runs once', () => {
  test(
    'does a turn when no relay leads, and none when one was done just now or another relay leads',
    withScenario(async (scenario) => {
      await fill(scenario, 10);
      const relay = scenario.idleRelay('cron', { ...options, maintenance: { keepEventsMs: dayMs } });
      await relay.runOnce();
      expect(await rows(scenario, 'outbox_events')).toBe(0);
      const ran = 'select task, ran_at from postcommit.outbox_maintenance order by task';
      const first = await scenario.db.query(ran);
      expect(first.map(({ task }) => task)).toEqual(everyTask);
      await relay.runOnce();
      expect(await scenario.db.query(ran)).toEqual(first);

      await scenario.relay('leader', options);
      await until(
        async () => (await scenario.db.query(`select from postcommit.outbox_leadership where lease_until > now()`))[0],
        {
          what: 'it leads',
        },
      );
      await scenario.db.query(`update postcommit.outbox_maintenance set ran_at = now() - interval '1 day'`);
      const told: unknown[] = [];
      relay.on('maintained', (run) => told.push(run));
      await relay.runOnce();
      expect(told).toEqual([]);
    }),
  );
});
