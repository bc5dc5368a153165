import { userInfo } from 'node:os';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { OutboxAdmin } from '../../src/admin/admin.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { runHere } from '../cli/fake-terminal.ts';
import { createTestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { seededRandom } from '../support/random.ts';
import { RelayScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { recordServer } from '../support/servers-used.ts';
import { until } from '../support/wait.ts';
import { Scene } from './scene.ts';

const dayMs = 24 * 3_600_000;
const delayMs = 300 * dayMs;

describe.each(postgresVersions)('an undelivered event, on PostgreSQL %i', (version) => {
  let scene: Scene;
  const serverUrl = serverUrlOf(version);

  beforeEach(async () => {
    scene = new Scene(await createTestDatabase({ serverUrl }));
    const [{ server_version: found }] = await scene.db.query('show server_version');
    recordServer(`PostgreSQL ${found}`);
  });
  afterEach(() => scene.close());

  /** Days until each event of the queue is due, by id; null for ready ones. */
  const daysAhead = async (): Promise<Record<string, number | null>> => {
    const rows = await scene.db.query<{ id: string; days: number | null }>(
      `select e.id, round(extract(epoch from q.available_at - now()) / 86400)::double precision as days
         from postcommit.outbox_queue q join postcommit.outbox_events e using (seq)`,
    );
    return Object.fromEntries(rows.map(({ id, days }) => [id, days]));
  };
  const untilDeferred = (ids: readonly string[], days: number) =>
    until(
      async () => {
        const found = await daysAhead();
        return ids.every((id) => found[id] === days);
      },
      { what: `events are deferred by ${days} days` },
    );

  test('that is delayed is made due: it is delivered at once, and what was deferred behind it follows in order', async () => {
    await scene.relay();
    const ids = await scene.emit([{ delayMs }, {}, {}, {}]);
    await untilDeferred(ids, 300);
    expect(await scene.admin.makeDue({ ids: ids.slice(0, 1) })).toEqual({ count: 1, inFlight: 0 });
    await scene.untilStatus('SENT', 4);
    expect(scene.delivered).toEqual(ids);
    expect(await scene.admin.makeDue({ ids })).toEqual({ count: 0, inFlight: 0 });
  });

  test('that is in backoff is made due', async () => {
    const relay = await scene.relay({ retry: { delaysMs: [200 * dayMs] } });
    const ids = await scene.emit([{ payload: { does: 'fail', times: 1 } }, {}]);
    await until(() => relay.stats().failed === 1, { what: 'it failed' });
    await untilDeferred(ids, 200);
    expect(await scene.admin.makeDue({ aggregate: ['order', '1'] })).toEqual({ count: 2, inFlight: 0 });
    await scene.untilStatus('SENT', 2);
    expect(scene.delivered).toEqual(ids);
  });

  test('is cancelled: its aggregate continues, its history shows who and why, and retention drops it', async () => {
    await scene.relay();
    const ids = await scene.emit([{ delayMs }, {}, {}]);
    const [id = ''] = ids;
    await untilDeferred(ids, 300);
    expect(await scene.admin.cancel({ ids: [id] }, { reason: 'wrong year' })).toEqual({
      count: 1,
      running: 0,
      delivered: 0,
    });
    await scene.untilStatus('SENT', 2);
    expect(scene.delivered).toEqual(ids.slice(1));
    const [{ role }] = await scene.db.query('select session_user::text as role');
    const error = `An operator cancelled the event, as the database role ${role}: wrong year`;
    const cancelled = { by: role, reason: 'wrong year' };
    expect(await scene.admin.find(id)).toMatchObject({
      status: 'FAILED',
      deadLetter: { reason: 'cancelled', cancelled, error, blocking: false, discardedAt: expect.any(Date) },
      failures: [
        { relay: 'operator', target: null, code: 'POSTCOMMIT_E_EVENT_CANCELLED', error, at: expect.any(Date) },
      ],
    });
    expect(await scene.admin.counts()).toMatchObject({ pending: 0, failed: 0 });
    expect((await scene.admin.deadLetters()).deadLetters).toEqual([]);
    expect((await scene.admin.deadLetters({ reason: 'cancelled', includeDiscarded: true })).deadLetters).toMatchObject([
      { id },
    ]);
    expect(await scene.admin.cancel({ ids: [id] })).toEqual({ count: 0, running: 0, delivered: 0 });
    expect(await scene.admin.prune({ olderThanMs: 0 })).toMatchObject({ events: 3 });
  });

  test('that shares its id with others is changed like them, and the result names them', async () => {
    await scene.admin.partitions.convert('day');
    const id = await scene.emitOne({ delayMs });
    await scene.admin.partitions.rotate();
    const copy = { aggregate: ['order', '2'] as const, id, delayMs };
    await scene.emit([copy]);
    const seqs = (await scene.db.query('select seq::text from postcommit.outbox_events order by seq')).map(
      ({ seq }) => seq,
    );
    const duplicates = [{ id, seqs }];
    expect(seqs).toHaveLength(2);
    expect(await scene.admin.makeDue({ ids: [id] })).toEqual({ count: 2, inFlight: 0, duplicates });
    expect(await scene.admin.cancel({ ids: [id] })).toEqual({ count: 2, running: 0, delivered: 0, duplicates });
  });

  test('that was cancelled can be taken back', async () => {
    await scene.relay();
    const id = await scene.emitOne({ delayMs });
    await scene.admin.cancel({ ids: [id] });
    expect(await scene.admin.retry({ ids: [id] })).toEqual({ count: 1 });
    await scene.untilStatus('SENT', 1);
  });

  test('that a live relay holds is not made due and reported, and is cancelled', async () => {
    const [held = '', waiting = ''] = await scene.emit([
      { aggregate: ['order', '1'] },
      { aggregate: ['order', '2'], delayMs },
    ]);
    const token = await registerRelay(scene.db.pool, 'postcommit', {
      name: 'r',
      host: 'h',
      pid: 1,
      leaseMs: 3_600_000,
    });
    await scene.db.query('update postcommit.outbox_queue set claimed_by = $1 where seq = $2', [
      token,
      await scene.seqOf(held),
    ]);
    expect(await scene.admin.makeDue({ ids: [held, waiting] })).toEqual({ count: 1, inFlight: 1 });
    expect(await scene.admin.find(held)).toMatchObject({ status: 'PROCESSING', holder: { name: 'r' } });
    expect(await scene.admin.cancel({ ids: [held, waiting] })).toEqual({ count: 2, running: 1, delivered: 0 });
    expect(await scene.admin.find(held)).toMatchObject({ status: 'FAILED' });
  });

  test('that a relay claims, registers for, or shelves in the very moment is cancelled with the knowledge of it', async () => {
    const id = await scene.emitOne();
    const seq = await scene.seqOf(id);
    const client = await scene.db.pool.connect();
    try {
      // A relay that is not yet there when the command begins, and has claimed when it gets the row.
      await client.query('begin');
      await client.query('select from postcommit.outbox_queue where seq = $1 for update', [seq]);
      const cancelling = scene.admin.cancel({ ids: [id] });
      await until(
        async () =>
          (
            await scene.db.query(
              `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%cancel_events%'`,
            )
          ).length > 0,
        { what: 'the command waits for the row' },
      );
      const token = await registerRelay(scene.db.pool, 'postcommit', {
        name: 'new',
        host: 'h',
        pid: 1,
        leaseMs: 3_600_000,
      });
      await client.query('update postcommit.outbox_queue set claimed_by = $1 where seq = $2', [token, seq]);
      await client.query('commit');
      expect(await cancelling).toEqual({ count: 1, running: 1, delivered: 0 });
      expect(await scene.admin.find(id)).toMatchObject({ status: 'FAILED' });

      // A relay that puts it onto the shelf meanwhile.
      const shelved = await scene.emitOne({ aggregate: ['order', '2'] });
      const shelvedSeq = await scene.seqOf(shelved);
      await client.query('begin');
      await client.query('delete from postcommit.outbox_queue where seq = $1', [shelvedSeq]);
      await client.query(
        `insert into postcommit.outbox_shelf (destination, seq, attempts, takeovers) values ('kafka', $1, 0, 0)`,
        [shelvedSeq],
      );
      const again = scene.admin.cancel({ ids: [shelved] });
      await until(
        async () =>
          (
            await scene.db.query(
              `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%cancel_events%'`,
            )
          ).length > 0,
        { what: 'the command waits for the row' },
      );
      await client.query('commit');
      expect(await again).toEqual({ count: 1, running: 0, delivered: 0 });
      expect(await scene.admin.find(shelved)).toMatchObject({ status: 'FAILED', owed: ['kafka'], waitingFor: [] });
    } finally {
      client.release();
    }
  });

  test('that waits for destinations is cancelled, and taken back it owes what it owed', async () => {
    const [id = '', other = ''] = await scene.emit([{}, { aggregate: ['order', '2'] }]);
    await scene.shelve([id, other], ['kafka', 'nats'], ['hook']);
    expect(await scene.admin.cancel({ ids: [id] })).toEqual({ count: 1, running: 0, delivered: 0 });
    expect(await scene.admin.find(id)).toMatchObject({ status: 'FAILED', done: ['hook'], owed: ['kafka', 'nats'] });
    expect(await scene.admin.counts()).toMatchObject({ pending: 1, shelved: 1 });
    await scene.admin.retry({ ids: [id] });
    expect(await scene.admin.find(id)).toMatchObject({ status: 'PENDING', done: ['hook'], owed: ['kafka', 'nats'] });
  });

  test('with a delay of its own keeps it when the one before is cancelled, and holds what is behind it no longer than that', async () => {
    await scene.relay();
    const ids = await scene.emit([{ delayMs }, {}, { delayMs: 20 * dayMs }, {}, { delayMs }, {}]);
    const [first = '', second = '', third = '', fourth = '', fifth = '', sixth = ''] = ids;
    await untilDeferred([first, second, fourth, fifth, sixth], 300);
    await scene.admin.cancel({ ids: [first] });
    await scene.untilStatus('SENT', 1);
    expect(scene.delivered).toEqual([second]);
    expect(await daysAhead()).toEqual({ [third]: 20, [fourth]: 20, [fifth]: 300, [sixth]: 20 });
    await scene.admin.makeDue({ ids: [third] });
    await scene.untilStatus('SENT', 3);
    expect(scene.delivered).toEqual([second, third, fourth]);
    expect(await daysAhead()).toEqual({ [fifth]: 300, [sixth]: 20 });
  });

  test('of a long aggregate: all that is deferred behind it continues', async () => {
    const [first = ''] = await scene.emit([{ delayMs }]);
    const rest = await scene.emit(Array.from({ length: 2_500 }, () => ({})));
    await scene.db.query(
      `update postcommit.outbox_queue set available_at = (select max(available_at) from postcommit.outbox_queue)`,
    );
    await scene.admin.cancel({ ids: [first] });
    expect(new Set(Object.values(await daysAhead()))).toEqual(new Set([null]));
    await scene.relay();
    await scene.untilStatus('SENT', 2_500);
    expect(scene.delivered).toEqual(rest);
  });

  /** Aggregates with an event that is delayed by 300 days each, and events that a relay has deferred behind it. */
  const emitDeferred = async (aggregates: number, followers: number) => {
    await scene.db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, available_at)
       select 'order', n::text, 'order.created', '{}', now() + interval '300 days' from generate_series(1, $1) n`,
      [aggregates],
    );
    await scene.db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       select 'order', n::text, 'order.paid', '{}' from generate_series(1, $1) n, generate_series(1, $2)`,
      [aggregates, followers],
    );
    await scene.db.query(
      'update postcommit.outbox_queue set available_at = (select max(available_at) from postcommit.outbox_queue)',
    );
  };
  const deferredBehindNothing = async () =>
    (
      await scene.db.query(
        `select from postcommit.outbox_queue q where q.available_at > now() and not exists (
           select from postcommit.outbox_queue p where p.key = q.key and p.seq < q.seq and p.available_at > now())`,
      )
    ).length;

  test.each(['makeDue', 'cancel'] as const)(
    'is never left with events deferred behind it when %s loses its connection, after whichever statement',
    async (method) => {
      for (let allowed = 0, isDone = false; !isDone; allowed++) {
        await scene.db.query(
          'truncate postcommit.outbox_events, postcommit.outbox_queue, postcommit.outbox_dead_letters',
        );
        await emitDeferred(3, 2);
        let left = allowed;
        const query = (text: string, values?: unknown[]) => {
          if (left-- <= 0) throw Object.assign(new Error('connection terminated'), { code: '08006' });
          return scene.db.pool.query(text, values);
        };
        const admin = new OutboxAdmin({ db: { query }, schema: 'postcommit', notify: false });
        const done = await admin[method]({ type: 'order.created' }).catch((error) => error.code);
        isDone = typeof done === 'object';
        const [{ delayed }] = await scene.db.query(
          `select count(*)::integer as delayed from postcommit.outbox_queue q join postcommit.outbox_events e using (seq)
          where e.event_type = 'order.created' and q.available_at > now()`,
        );
        expect(await deferredBehindNothing(), `after ${allowed} statements`).toBe(delayed);
        if (isDone) expect({ done, delayed }).toMatchObject({ done: { count: 3 }, delayed: 0 });
      }
    },
  );

  test.each(['makeDue', 'cancel'] as const)('%s takes a few statements for thousands of aggregates', async (method) => {
    await emitDeferred(2_500, 1);
    let statements = 0;
    const query = (text: string, values?: unknown[]) => {
      statements++;
      return scene.db.pool.query(text, values);
    };
    const admin = new OutboxAdmin({ db: { query }, schema: 'postcommit', notify: false });
    expect(await admin[method]({ type: 'order.created' })).toMatchObject({ count: 2_500 });
    expect(await deferredBehindNothing()).toBe(0);
    expect(statements).toBeLessThan(15);
  });

  test.each(['makeDue', 'cancel'] as const)(
    '%s takes fewer events per statement when very many are deferred behind them',
    async (method) => {
      await emitDeferred(2, 12_000);
      const progress: number[] = [];
      const onProgress = (count: number) => progress.push(count);
      const done = { count: 2 };
      expect(await scene.admin[method]({ type: 'order.created' }, { onProgress })).toMatchObject(done);
      expect(progress).toEqual([1, 2]);
      expect(await deferredBehindNothing()).toBe(0);
    },
  );

  test('that is a dead letter and holds its key, or is parked behind one, is for retry and discard', async () => {
    await scene.relay({ poison: 'block' });
    const ids = await scene.emit([{ payload: { does: 'reject' } }, {}, {}]);
    const [dead = '', next = ''] = ids;
    await scene.untilStatus('FAILED', 1);
    await scene.untilParked(2);
    expect(await scene.admin.makeDue({ ids })).toEqual({ count: 0, inFlight: 0 });
    expect(await scene.admin.cancel({ ids: [dead] })).toEqual({ count: 0, running: 0, delivered: 0 });
    expect(await scene.parked()).toBe(2);
    expect(await scene.admin.cancel({ ids: [next] })).toEqual({ count: 1, running: 0, delivered: 0 });
    await scene.admin.discard({ ids: [dead] });
    await scene.untilStatus('SENT', 1);
    expect(scene.delivered).toEqual(ids.slice(2));
  });

  test('is found by conditions, also among thousands, and only what was there', async () => {
    const many = (type: string, count: number) =>
      scene.emit(
        Array.from({ length: count }, (_, n) => ({ type, aggregate: ['order', String(n)] as const, delayMs })),
      );
    await many('order.paid', 2_345);
    await many('invoice.sent', 5);
    const shelved = await scene.emit([{ type: 'order.paid', aggregate: ['order', 'x'] }]);
    await scene.shelve(shelved, ['kafka', 'nats']);
    expect(await scene.admin.cancel({ type: 'order.paid', to: new Date(Date.now() - dayMs) })).toEqual({
      count: 0,
      running: 0,
      delivered: 0,
    });
    expect(await scene.admin.cancel({ type: 'order.paid' })).toEqual({ count: 2_346, running: 0, delivered: 0 });
    expect(await scene.admin.counts()).toMatchObject({ pending: 5, shelved: 0 });
    expect(await scene.admin.makeDue({ all: true })).toEqual({ count: 5, inFlight: 0 });
    await expect(scene.admin.cancel({})).rejects.toMatchObject({ code: 'POSTCOMMIT_E_EMPTY_FILTER' });
    await expect(scene.admin.cancel({ all: true }, { why: 'x' } as never)).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_BAD_OPTION',
    });
  });

  test('made due or cancelled at random under running relays: order per aggregate holds, and nothing is lost (G4)', async () => {
    const random = seededRandom();
    const scenario = await RelayScenario.create({ serverUrl });
    try {
      const { admin } = createOutbox({ db: fromPg(scenario.db.pool) });
      const ids: string[] = [];
      for (const name of ['one', 'two']) await scenario.relay(name, { retry: { delaysMs: [dayMs, dayMs, dayMs] } });
      for (let round = 0; round < 25; round++) {
        const events = Array.from({ length: 12 }, () => ({
          aggregateId: String(random.integer(0, 4)),
          ...(random.integer(0, 4) === 0 ? { delayMs } : {}),
          script: { failTimes: random.integer(0, 5) === 0 ? 1 : 0 },
        }));
        ids.push(...(await scenario.emit(events)));
        const some = () => Array.from({ length: 6 }, () => ids[random.integer(0, ids.length - 1)] as string);
        await Promise.all([admin.makeDue({ ids: some() }), admin.cancel({ ids: some().slice(0, 2) })]);
      }
      // What is left waits for a delay or a backoff, or behind one. makeDue() may meet an event that is being delivered.
      await until(
        async () => {
          await admin.makeDue({ all: true });
          return (await scenario.queued()) === 0;
        },
        { timeoutMs: 30_000, what: 'the queue is empty' },
      );
      const findings = await scenario.findings();
      expect(findings).toEqual({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
      const cancelled = await scenario.db.query(
        `select from postcommit.outbox_dead_letters where reason = 'cancelled'`,
      );
      expect(cancelled.length).toBeGreaterThan(0);
    } finally {
      await scenario.close();
    }
  });
});

describe('on the command line', () => {
  let scene: Scene;
  const here = (...args: string[]) => runHere(args, { env: { DATABASE_URL: scene.db.url } });

  beforeEach(async () => {
    scene = await Scene.create();
  });
  afterEach(() => scene.close());

  test('an event is made due or cancelled, and its story says what can be done and what was done', async () => {
    const [first = '', second = '', third = ''] = await scene.emit(
      ['1', '2', '3'].map((n) => ({ aggregate: ['order', n] as const, delayMs })),
    );
    expect((await here('events', first)).stdout).toContain(`postcommit events make-due ${first}`);
    expect((await here('events', first)).stdout).toContain(`postcommit events cancel ${first}`);
    expect(await here('events', 'make-due', first)).toMatchObject({ code: 0, stdout: '1 delayed event made due\n' });
    const again = await here('events', 'make-due', first);
    expect(again).toMatchObject({ code: 1, stdout: '' });
    expect(again.stderr).toContain('POSTCOMMIT_E_NOT_FOUND');
    expect(await here('events', 'cancel', second, '--yes', '--why', 'wrong date', '--operator', 'ann')).toMatchObject({
      code: 0,
      stdout: '1 undelivered event cancelled\n',
    });
    const { stdout } = await here('events', second);
    expect(stdout).toMatch(/FAILED \(discarded\)/);
    const gone = await here('events', 'cancel', second, '--yes');
    expect(gone.stderr).toContain('None of the ids is an undelivered event.');
    expect(stdout).toMatch(/ann cancelled the event, as the database role \w+: wrong date\n/);
    expect(stdout).toContain('dead letter: cancelled by an operator');
    const json = await here('events', 'cancel', '--type', 'order.created', '--yes', '--json');
    expect(JSON.parse(json.stdout)).toEqual({ count: 2, running: 0, delivered: 0 });
    expect(await scene.admin.find(third)).toMatchObject({
      status: 'FAILED',
      deadLetter: { cancelled: { by: userInfo().username, reason: null } },
    });
    expect((await here('dead', 'list', '--reason', 'cancelled', '--include-discarded')).stdout).toContain(third);
  });

  test('an event that a relay holds is not made due, and is cancelled with its handler told to stop', async () => {
    await scene.relay({ destinations: { kafka: new ScriptedPublisher() } });
    const [held = '', waiting = ''] = await scene.emit([
      { payload: { does: 'hang' } },
      { aggregate: ['order', '2'], delayMs },
    ]);
    await until(() => scene.hanging === 1, { what: 'it is being delivered' });
    const run = await here('events', 'make-due', held, '--yes');
    expect(run).toMatchObject({ code: 1, stdout: '' });
    expect(run.stderr).toContain('POSTCOMMIT_E_EVENT_IN_FLIGHT');
    expect((await here('events', held)).stdout).toContain(`postcommit events cancel ${held}`);
    expect(await here('events', 'cancel', held, waiting, '--yes')).toMatchObject({
      code: 0,
      stdout: '2 undelivered events cancelled\n1 event of them in flight: their handlers are being aborted\n',
    });
    expect(await scene.admin.find(held)).toMatchObject({ status: 'FAILED' });
  });

  test('an event that is already delivered is named, with exit code 1', async () => {
    await scene.relay();
    const delivered = await scene.emitOne();
    await scene.untilStatus('SENT', 1);
    const waiting = await scene.emitOne({ delayMs });
    const run = await here('events', 'cancel', delivered, '--yes');
    expect(run).toMatchObject({ code: 1, stdout: '' });
    expect(run.stderr).toContain('POSTCOMMIT_E_ALREADY_DELIVERED');
    expect(await here('events', 'cancel', delivered, waiting, '--yes')).toMatchObject({
      code: 1,
      stdout: '1 undelivered event cancelled\n1 event not cancelled: already delivered\n',
    });
  });
});
