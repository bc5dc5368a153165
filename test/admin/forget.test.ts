import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Reject } from '../../src/index.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { runHere } from '../cli/fake-terminal.ts';
import { createTestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { recordServer } from '../support/servers-used.ts';
import { until } from '../support/wait.ts';
import { Scene } from './scene.ts';

const nothing = { sent: 0, discarded: 0, stillWaiting: 0, queued: 0, deadLetters: 0, usedBy: [], inFlight: 0 };

describe.each(postgresVersions)('a destination that is gone for good, on PostgreSQL %i', (version) => {
  let scene: Scene;

  beforeEach(async () => {
    scene = new Scene(await createTestDatabase({ serverUrl: serverUrlOf(version) }));
    const [{ server_version: found }] = await scene.db.query('show server_version');
    recordServer(`PostgreSQL ${found}`);
  });
  afterEach(() => scene.close());

  const manyAggregates = (count: number) =>
    scene.emit(Array.from({ length: count }, (_, n) => ({ aggregate: ['order', String(n)] as const })));
  const left = async () => {
    const [row] = await scene.db.query(
      `select (select count(*)::integer from postcommit.outbox_queue) as queue,
              (select count(*)::integer from postcommit.outbox_shelf) as shelf,
              (select count(*)::integer from postcommit.outbox_events) as events`,
    );
    return row;
  };
  const statusOf = async (ids: readonly string[]) =>
    new Set((await Promise.all(ids.map((id) => scene.admin.find(id)))).map((story) => story?.status));

  test('keeps its row when a relay that has it starts meanwhile', async () => {
    const [id] = await manyAggregates(1);
    const seq = await scene.seqOf(id as string);
    await scene.db.query(`insert into postcommit.outbox_destinations (destination) values ('kafka')`);
    await scene.db.query(
      `insert into postcommit.outbox_dead_letters (seq, reason, attempts, owed, error) values ($1, 'exhausted', 1, '{kafka}', 'x')`,
      [seq],
    );
    const locker = await scene.db.pool.connect();
    await locker.query('begin; select from postcommit.outbox_dead_letters for update');
    const forgetting = scene.admin.forget('kafka');
    await until(
      async () =>
        (
          await scene.db.query(
            `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%forget_target%'`,
          )
        ).length === 1,
      { what: 'forget waits for the dead letter' },
    );
    const token = await registerRelay(scene.db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 60_000 });
    await scene.db.query(`update postcommit.outbox_relays set targets = '{kafka}' where token = $1`, [token]);
    await locker.query('rollback');
    locker.release();
    await forgetting;
    expect(await scene.db.query('select destination from postcommit.outbox_destinations')).toEqual([
      { destination: 'kafka' },
    ]);
  });

  test('is forgotten with a preview, and the history of each event shows it', async () => {
    const ids = await manyAggregates(12);
    await scene.shelve(ids.slice(0, 4), ['kafka'], ['hook']);
    await scene.shelve(ids.slice(4, 6), ['kafka']);
    await scene.shelve(ids.slice(6, 9), ['kafka', 'nats'], ['hook']);
    // Those in the queue were on their way back from the shelf.
    for (const [index, [owed, done]] of [
      ['{kafka}', '{hook}'],
      ['{kafka}', null],
      ['{kafka,nats}', '{hook}'],
    ].entries()) {
      await scene.db.query('update postcommit.outbox_queue set owed = $1, done = $2 where seq = $3', [
        owed,
        done,
        await scene.seqOf(ids[9 + index] as string),
      ]);
    }
    const counts = { ...nothing, sent: 5, discarded: 3, stillWaiting: 3, queued: 1 };
    const before = await left();
    expect(await scene.admin.forget('kafka', { dryRun: true })).toEqual(counts);
    expect(await left()).toEqual(before);

    expect(await scene.admin.forget('kafka')).toEqual(counts);
    expect(await left()).toMatchObject({ queue: 1, shelf: 3 });
    expect((await scene.admin.destinations()).map(({ name }) => name)).toEqual(['nats']);
    const forgotten = {
      target: 'kafka',
      code: 'POSTCOMMIT_E_TARGET_FORGOTTEN',
      error: 'An operator forgot kafka: the event is not delivered there.',
      relay: 'operator',
      at: expect.any(Date),
    };
    expect(await scene.admin.find(ids[0] as string)).toMatchObject({
      status: 'SENT',
      deliveries: [{ targets: ['hook'], relay: 'operator' }],
      failures: [forgotten],
    });
    expect(await scene.admin.find(ids[4] as string)).toMatchObject({
      status: 'FAILED',
      deadLetter: { reason: 'forgotten', discardedAt: expect.any(Date) },
      failures: [forgotten],
    });
    expect(await scene.admin.find(ids[6] as string)).toMatchObject({
      status: 'PENDING',
      waitingFor: ['nats'],
      done: ['hook'],
      failures: [forgotten],
    });
    expect(await statusOf(ids.slice(9))).toEqual(new Set(['SENT', 'FAILED', 'PENDING']));
    expect(await scene.admin.find(ids[11] as string)).toMatchObject({ owed: ['nats'], failures: [forgotten] });
    expect(await scene.admin.counts()).toMatchObject({ pending: 4, shelved: 3, delivered: 5, failed: 0 });
    // It is no destination any more.
    await expect(scene.admin.forget('kafka')).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NO_SUCH_DESTINATION' });
    // Nothing but what waits for another one is kept from retention.
    const { events, kept } = await scene.admin.prune({ olderThanMs: 0 });
    expect({ events, kept }).toEqual({ events: 8, kept: { queued: 1, shelved: 3, dead: 0, unqueued: 0 } });
  });

  test('frees what is deferred behind an event that owes nothing else', async () => {
    const legacy = new ScriptedPublisher();
    legacy.outcomeOf = () => ({ kind: 'failed', reason: 'busy', retryAfterMs: 3_000_000 });
    const before = await scene.relay({ handlers: {}, destinations: { legacy }, retry: { delaysMs: [3_600_000] } });
    await scene.emitOne();
    await until(() => before.stats().failed === 1, { what: 'it is in backoff' });
    await scene.emit([{}, {}]);
    const deferred = async () => {
      const [row] = await scene.db.query(
        `select count(*)::integer as n from postcommit.outbox_queue where available_at > now() + interval '10 minutes'`,
      );
      return row.n;
    };
    await until(async () => (await deferred()) === 3, { what: 'the others wait behind it' });
    await before.stop();
    const fresh = new ScriptedPublisher();
    await scene.relay({ handlers: {}, destinations: { fresh } });
    expect(await scene.admin.forget('legacy')).toEqual({ ...nothing, discarded: 1 });
    await until(() => fresh.received.length === 2, { what: 'the others are delivered' });
  });

  test('frees them of many aggregates in several steps', async () => {
    await scene.emit(Array.from({ length: 24_000 }, (_, n) => ({ aggregate: ['order', String(n % 3)] as const })));
    await scene.db.query(`insert into postcommit.outbox_destinations (destination) values ('kafka')`);
    await scene.db.query(`update postcommit.outbox_queue set available_at = now() + interval '1 hour',
      owed = case when seq in (select min(seq) from postcommit.outbox_queue group by key) then '{kafka}'::text[] end`);
    expect(await scene.admin.forget('kafka')).toEqual({ ...nothing, discarded: 3 });
    const [{ ready }] = await scene.db.query(
      'select count(*)::integer as ready from postcommit.outbox_queue where available_at is null',
    );
    expect(ready).toBe(23_997);
  });

  test('skips an event that another transaction has locked, and forgets it for those behind it', async () => {
    // Too many for one step, so that each takes the events of one aggregate.
    await scene.emit(Array.from({ length: 22_000 }, (_, n) => ({ aggregate: ['order', String(n % 2)] as const })));
    await scene.db.query(`insert into postcommit.outbox_destinations (destination) values ('kafka')`);
    await scene.db.query(`update postcommit.outbox_queue set available_at = now() + interval '1 hour',
      owed = case when seq in (select min(seq) from postcommit.outbox_queue group by key) then '{kafka}'::text[] end`);
    const locker = await scene.db.pool.connect();
    await locker.query('begin; select from postcommit.outbox_queue order by seq limit 1 for update');
    expect(await scene.admin.forget('kafka')).toEqual({ ...nothing, discarded: 1, inFlight: 1 });
    await locker.query('rollback');
    locker.release();
    expect(await scene.admin.forget('kafka')).toEqual({ ...nothing, discarded: 1 });
    const [{ ready }] = await scene.db.query(
      'select count(*)::integer as ready from postcommit.outbox_queue where available_at is null',
    );
    expect(ready).toBe(21_998);
  });

  test('goes with thousands of events, in chunks', async () => {
    const ids = await manyAggregates(2_345);
    await scene.shelve(ids, ['kafka'], ['hook']);
    expect(await scene.admin.forget('kafka')).toEqual({ ...nothing, sent: 2_345 });
    expect(await scene.admin.counts()).toMatchObject({ pending: 0, delivered: 2_345 });
    expect(await scene.admin.replay({ ids: ids.slice(0, 1) })).toEqual({ count: 1 });
  });

  test('two at once, of events that wait for both, lose none of them', async () => {
    const ids = await manyAggregates(500);
    await scene.shelve(ids.slice(0, 250), ['kafka', 'nats'], ['hook']);
    await scene.shelve(ids.slice(250), ['kafka', 'nats']);
    const results = await Promise.all(['kafka', 'nats'].map((name) => scene.admin.forget(name)));
    expect(results.reduce((sum, { sent }) => sum + sent, 0)).toBe(250);
    expect(results.reduce((sum, { discarded }) => sum + discarded, 0)).toBe(250);
    expect(await left()).toMatchObject({ queue: 0, shelf: 0 });
    expect(await statusOf(ids.slice(0, 10))).toEqual(new Set(['SENT']));
    expect(await statusOf(ids.slice(250, 260))).toEqual(new Set(['FAILED']));
  });
});

describe('forget', () => {
  let scene: Scene;
  const here = (...args: string[]) => runHere(args, { env: { DATABASE_URL: scene.db.url } });

  beforeEach(async () => {
    scene = await Scene.create();
  });
  afterEach(() => scene.close());

  test('is refused while a live relay has the destination, and changes nothing', async () => {
    const ids = await scene.emit([{}]);
    await scene.shelve(ids, ['kafka'], ['hook']);
    const relay = { name: 'sender', host: 'h', pid: 1, leaseMs: 3_600_000, targets: ['kafka'] };
    const token = await registerRelay(scene.db.pool, 'postcommit', relay);
    await expect(scene.admin.forget('kafka')).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_TARGET_IN_USE',
      message: expect.stringContaining('Live relays that have it: sender.'),
    });
    expect(await scene.admin.forget('kafka', { dryRun: true })).toMatchObject({ sent: 1, usedBy: ['sender'] });
    expect((await here('forget', 'kafka')).stdout).toContain(
      'it cannot be forgotten while live relays have it: sender',
    );
    expect((await here('forget', 'kafka', '--yes')).code).toBe(1);
    expect(await scene.admin.find(ids[0] as string)).toMatchObject({ status: 'PENDING', waitingFor: ['kafka'] });
    await scene.db.query('update postcommit.outbox_relays set ended_at = now() where token = $1', [token]);
    expect(await scene.admin.forget('kafka')).toMatchObject({ sent: 1 });
  });

  test('frees the shelf of the last destination while a relay without destinations runs', async () => {
    const kafka = new ScriptedPublisher();
    kafka.mood = 'away';
    const before = await scene.relay({ name: 'before', destinations: { kafka } });
    const [id] = (await scene.emit([{}])) as [string];
    await until(async () => (await scene.admin.counts()).shelved === 1, { what: 'it waits for kafka' });
    await before.stop();
    await scene.relay({ name: 'after' });
    expect(await scene.admin.forget('kafka')).toEqual({ ...nothing, sent: 1 });
    expect(await scene.admin.find(id)).toMatchObject({ status: 'SENT', deliveries: [{ targets: ['work'] }] });
    await scene.emitOne();
    await scene.untilStatus('SENT', 2);
  });

  test('a handler that was renamed: the event goes to the one there is, and a dead letter no longer waits', async () => {
    const calls: string[] = [];
    const broken = () => Promise.reject(new Error('not yet'));
    const old = await scene.relay({
      retry: { delaysMs: Array(50).fill(10) },
      handlers: {
        'order.created': { mail: () => void calls.push('mail'), old: broken },
        'order.paid': { old: () => Promise.reject(new Reject('never')) },
      },
    });
    const [id] = (await scene.emit([{}])) as [string];
    const [dead] = (await scene.emit([{ type: 'order.paid', aggregate: ['order', '2'] }])) as [string];
    await until(() => old.stats().failed > 1, { what: 'it is in retry' });
    await scene.untilStatus('FAILED', 1);
    await old.stop();
    const renamed = (name: string) => ({ renamed: () => void calls.push(name) });
    await scene.relay({
      handlers: {
        'order.created': { mail: () => void calls.push('mail again'), ...renamed('renamed') },
        'order.paid': renamed('paid'),
      },
    });
    expect(await scene.admin.missingTargets()).toEqual([{ target: 'order.created:old', events: 1 }]);
    expect(await scene.admin.forget('order.created:old')).toEqual({ ...nothing, queued: 1 });
    await scene.untilStatus('SENT', 1);
    expect(calls).toEqual(['mail', 'renamed']);
    expect((await scene.admin.find(id))?.failures.at(-1)).toMatchObject({
      target: 'order.created:old',
      relay: 'operator',
    });

    expect(await scene.admin.forget('order.paid:old')).toEqual({ ...nothing, deadLetters: 1 });
    await scene.admin.retry({ ids: [dead] });
    await scene.untilStatus('SENT', 2);
    expect(calls).toEqual(['mail', 'renamed', 'paid']);
  });

  test('on the command line: without --yes it only tells', async () => {
    const ids = await scene.emit([{}, { aggregate: ['order', '2'] }, { aggregate: ['order', '3'] }]);
    await scene.shelve(ids.slice(0, 2), ['kafka'], ['hook']);
    await scene.shelve(ids.slice(2), ['kafka']);
    expect(await here('forget', 'kafka')).toMatchObject({
      code: 0,
      stdout: [
        'if kafka is forgotten:',
        '  2 events delivered to all other targets: SENT',
        '  1 event delivered to no target: discarded as dead letters',
        'nothing was changed; to forget it: npx postcommit forget --yes kafka',
        '',
      ].join('\n'),
    });
    expect(await scene.admin.counts()).toMatchObject({ shelved: 3 });
    const done = await here('forget', 'kafka', '--yes', '--json');
    expect(JSON.parse(done.stdout)).toEqual({ target: 'kafka', dryRun: false, ...nothing, sent: 2, discarded: 1 });
    expect((await here('events', ids[0] as string)).stdout).toContain(
      'An operator forgot kafka: the event is not delivered there.\n',
    );
    const misspelt = await here('forget', 'kafak');
    expect(misspelt.code).toBe(1);
    expect(misspelt.stderr).toContain('POSTCOMMIT_E_NO_SUCH_DESTINATION');
    expect((await here('forget', 'send-receipt')).stderr).toContain('includes its event type: type:name');
  });

  test('takes no options that it does not know', async () => {
    await expect(scene.admin.forget('x', { dryrun: true } as never)).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_BAD_OPTION',
    });
    await expect(scene.admin.forget('\0')).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NO_SUCH_DESTINATION' });
  });
});
