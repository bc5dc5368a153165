import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { claim, claimNext, isRelayEnded } from '../../src/outbox/delivering/claim.ts';
import { declareRelaysLost } from '../../src/outbox/delivering/declare-relays-lost.ts';
import { deregisterRelay } from '../../src/outbox/delivering/deregister-relay.ts';
import { type Failure, fail } from '../../src/outbox/delivering/fail.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { renewLease } from '../../src/outbox/delivering/renew-lease.ts';
import { settle } from '../../src/outbox/delivering/settle.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { statement } from '../support/postgres-proxy.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { nextEvent, until, within } from '../support/wait.ts';

const limits = { leaseMs: 1_000, batchSizeMax: 10, prefetchMax: 20, inFlightMax: 4, pollIntervalMs: 100 };

/** Each event's number of delivery records. */
async function recorded(scenario: RelayScenario): Promise<number[]> {
  const rows = await scenario.db.query(
    `select count(d)::integer as n from postcommit.outbox_events e
       left join postcommit.outbox_deliveries d on d.seqs @> e.seq group by e.seq order by e.seq`,
  );
  return rows.map(({ n }) => n);
}

describe('G5 fencing: a relay that stalled past its lease', () => {
  test(
    'cannot settle events of the new owner, notices it, and continues under a new token',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const stalled = await scenario.relay('stalled', { ...limits, connectionString: proxy.url(scenario.db.url) });
      const firstToken = stalled.stats().token;
      const settled = proxy.holdRequest({ text: statement.settle });
      await scenario.emitLine('a', 6);
      await within(settled.caught, { what: 'its result is on the way' });
      proxy.stall('heartbeat');
      await scenario.relay('owner', limits);
      await until(async () => (await scenario.queued()) === 0, { what: 'the new owner delivered all' });

      const fenced = nextEvent<{ attempt: number }>(stalled, 'fenced');
      const lost = nextEvent<{ token: string }>(stalled, 'leaseLost');
      settled.release();
      expect(await fenced).toMatchObject({ eventType: 'scripted', aggregateId: 'a', attempt: 1 });
      proxy.resume('heartbeat');
      expect((await lost).token).toBe(firstToken);
      await until(() => stalled.stats().token !== undefined, { what: 'it has a new token' });
      expect(stalled.stats().token).not.toBe(firstToken);
      expect(stalled.stats().fenced).toBeGreaterThan(0);
      expect(stalled.stats().delivered).toBe(0);
      expect(await recorded(scenario)).toEqual([1, 1, 1, 1, 1, 1]);

      await scenario.emit(
        Array.from({ length: 200 }, (_, n) => ({ aggregateId: `b${n % 20}`, script: { workMs: 5 } })),
      );
      await scenario.drained();
      await until(() => stalled.stats().delivered > 0, { what: 'it delivers again' });
    }),
  );

  test(
    'stopped by the system and continued: it begins nothing that it held',
    withScenario(async (scenario) => {
      await scenario.emit(
        Array.from({ length: 12 }, (_, n) => ({ aggregateId: `a${n % 8}`, script: { workMs: 400 } })),
      );
      const sleeper = await scenario.child('sleeper', limits);
      // At its first deliveries, while the rest of what it claimed waits in its hands.
      await until(() => scenario.journal.read().length === limits.inFlightMax, { what: 'it is at work' });
      process.kill(sleeper.pid, 'SIGSTOP');
      const before = scenario.journal.read().length;
      const owner = await scenario.relay('owner', limits);
      await scenario.drained();
      await owner.stop();
      process.kill(sleeper.pid, 'SIGCONT');
      const lost = await sleeper.next(({ event }) => event === 'leaseLost');
      expect(lost.token).toMatch(/^\d+$/);

      // It continues with new events under a new token.
      await scenario.emitLine('later', 5);
      await until(
        () => scenario.journal.read().filter(({ key, phase }) => key === 'thing:later' && phase === 'end').length === 5,
        {
          what: 'it delivers again',
        },
      );
      await scenario.drained();
      const begunLate = scenario.journal
        .read()
        .slice(before)
        .filter(({ relay, phase, key }) => relay === 'sleeper' && phase === 'begin' && key !== 'thing:later');
      expect(begunLate).toEqual([]);
      const findings = await scenario.findings({ killed: ['sleeper'] });
      expect(findings).toMatchObject({ lost: [], orderViolations: [], overlaps: [] });
      expect(findings.duplicates).toBeLessThanOrEqual(limits.inFlightMax);
      expect(new Set(await recorded(scenario))).toEqual(new Set([1]));
    }),
  );

  test(
    'aborts its handlers before anyone can take over, and their events cost no attempt',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      let aborted: unknown;
      const stalled = await scenario.relay('stalled', {
        ...limits,
        connectionString: proxy.url(scenario.db.url),
        handlers: {
          scripted: {
            script: (_event, ctx) =>
              new Promise((_, reject) => {
                ctx.signal.addEventListener('abort', () => {
                  aborted = ctx.signal.reason;
                  reject(ctx.signal.reason);
                });
              }),
          },
        },
      });
      await scenario.emitLine('a', 3);
      await until(() => stalled.stats().inFlight === 1, { what: 'the handler runs' });
      proxy.stall('heartbeat');
      await until(() => aborted !== undefined, { what: 'the handler was aborted' });
      const [{ alive }] = await scenario.db.query(
        'select lease_until > now() as alive from postcommit.outbox_relays where ended_at is null',
      );
      expect(aborted).toMatchObject({ code: 'POSTCOMMIT_E_LEASE_LOST' });
      expect(alive).toBe(true);
      await scenario.relay('owner', limits);
      await scenario.drained();
      expect(await scenario.db.query('select * from postcommit.outbox_failures')).toEqual([]);
    }),
  );
});

describe('G5 fencing: a failover that lost the registrations', () => {
  test(
    'a relay registers anew at once, and continues',
    withScenario(async (scenario) => {
      const relay = await scenario.relay('one', { leaseMs: 60_000 });
      const before = relay.stats().token;
      await scenario.db.query('truncate postcommit.outbox_relays restart identity');
      const lost = nextEvent(relay, 'leaseLost');
      await scenario.emitLine('a', 3);
      await lost;
      await scenario.drained();
      expect(relay.stats().token).not.toBe(before);
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [] });
    }),
  );
});

describe('G5 fencing: the statements', () => {
  let db: TestDatabase;
  let stale: string;
  let owner: string;
  const query = (text: string, values: unknown[]) => db.pool.query({ text, values, rowMode: 'array' });
  const relay = { name: 'r', host: 'h', pid: 1 };

  beforeAll(async () => {
    db = await createTestDatabase();
  });
  afterAll(() => db.close());
  beforeEach(async () => {
    await db.query('truncate postcommit.outbox_events, postcommit.outbox_queue, postcommit.outbox_relays');
    stale = await registerRelay(db.pool, 'postcommit', { ...relay, leaseMs: 1 });
    owner = await registerRelay(db.pool, 'postcommit', { ...relay, leaseMs: 60_000 });
    await db.query(`select postcommit.emit('t', 'a', '1', 'null') from generate_series(1, 3)`);
    await db.query('update postcommit.outbox_queue set claimed_by = $1', [owner]);
  });

  const story = async () => ({
    queue: await db.query('select * from postcommit.outbox_queue order by seq'),
    deliveries: await db.query('select * from postcommit.outbox_deliveries'),
    failures: await db.query('select * from postcommit.outbox_failures'),
    deadLetters: await db.query('select * from postcommit.outbox_dead_letters'),
  });
  const seqs = async () =>
    (await db.query('select seq::text from postcommit.outbox_queue order by seq')).map((r) => r.seq);
  const errors = [{ target: 't', code: 'c', error: 'e' }];
  const transitions: [string, object][] = [
    ['retry', { transition: 'retry', delayMs: 0, done: [], errors }],
    ['release', { transition: 'release' }],
    ['dead_letter', { transition: 'dead_letter', reason: 'rejected', done: [], errors }],
    ['block', { transition: 'block', reason: 'rejected', done: [], errors }],
  ];

  test('settle', async () => {
    const before = await story();
    const given = (await seqs()).map((seq) => ({ seq, targets: ['t'] }));
    expect(await settle(query, 'postcommit', stale, given)).toEqual(await seqs());
    expect(await story()).toEqual(before);
  });

  test.each(transitions)('%s', async (_name, failure) => {
    const before = await story();
    const given = (await seqs()).map((seq) => ({ seq, attempts: 0, ...failure }) as Failure);
    expect(await fail(query, 'postcommit', stale, given)).toEqual(await seqs());
    expect(await story()).toEqual(before);
  });

  test('a token is not given out again after the registrations were lost, as by a restore', async () => {
    await db.query('truncate postcommit.outbox_relays restart identity');
    const tokens = [];
    for (let n = 0; n < 3; n++) tokens.push(await registerRelay(db.pool, 'postcommit', { ...relay, leaseMs: 60_000 }));
    expect(tokens).not.toContain(owner);
    expect(tokens).not.toContain(stale);
    expect(await renewLease(db.pool, 'postcommit', owner, 60_000, {})).toBe(false);
  });

  test.each([
    ['has ended', (token: string) => deregisterRelay(db.pool, 'postcommit', token)],
    ['is not known any more', () => db.query('truncate postcommit.outbox_relays')],
  ])('a relay that %s cannot claim', async (_name, lose) => {
    const request = { token: owner, exceptKeys: [], inlineBytesMax: 1_000, knownSeqs: undefined, targets: [] };
    const lowWater = { mark: '0', requeues: '0', server: '' };
    const large = { floor: '0', readyMax: 10, dueMax: 5, sample: false, ownShards: false, suspectMax: 1 } as const;
    await db.query('update postcommit.outbox_queue set claimed_by = null');
    await lose(owner);
    await expect(claim(query, 'postcommit', { ...request, ...large, lowWater })).rejects.toSatisfy(isRelayEnded);
    await db.query('delete from postcommit.outbox_queue where seq > (select min(seq) from postcommit.outbox_queue)');
    await expect(claimNext(query, 'postcommit', { ...request, lowWater })).rejects.toSatisfy(isRelayEnded);
    expect(await db.query('select claimed_by from postcommit.outbox_queue')).toEqual([{ claimed_by: null }]);
  });

  test('a relay declared lost cannot renew, and a heartbeat that came first keeps it alive', async () => {
    const rivals = { ownToken: owner, serverUpMs: 0, overdueMs: 0 };
    await until(
      async () => (await db.query('select from postcommit.outbox_relays where lease_until < now()')).length === 1,
      {
        what: 'its lease ran out',
      },
    );
    expect(await renewLease(db.pool, 'postcommit', stale, 60_000, {})).toBe(true);
    expect(await declareRelaysLost(db.pool, 'postcommit', rivals)).toEqual([]);
    await db.query(`update postcommit.outbox_relays set lease_until = now() - interval '1 second' where token = $1`, [
      stale,
    ]);
    expect(await declareRelaysLost(db.pool, 'postcommit', rivals)).toMatchObject([
      { token: stale, name: 'r', host: 'h', pid: 1 },
    ]);
    expect(await renewLease(db.pool, 'postcommit', stale, 60_000, {})).toBe(false);
    await deregisterRelay(db.pool, 'postcommit', stale);
    const [row] = await db.query('select ended_as from postcommit.outbox_relays where token = $1', [stale]);
    expect(row.ended_as).toBe('lost');
  });
});
