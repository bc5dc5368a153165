import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type ClaimRequest, claim, claimSql, compareSeq } from '../../src/outbox/delivering/claim.ts';
import { defer } from '../../src/outbox/delivering/defer.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { until } from '../support/wait.ts';

let db: TestDatabase;
beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.close());

const query = (text: string, values: unknown[]) => db.pool.query({ text, values, rowMode: 'array' });
const relay = (name: string) => registerRelay(db.pool, 'postcommit', { name, host: 'h', pid: 1, leaseMs: 60_000 });
const request = {
  floor: '0',
  readyMax: 10,
  dueMax: 5,
  exceptKeys: [],
  inlineBytesMax: 1_000,
  knownSeqs: undefined,
  lowWater: { mark: '0', requeues: '0', server: '' },
  sample: false,
  ownShards: false,
  suspectMax: 1,
  targets: [],
} as const;
const claimAs = (token: string, more: Partial<ClaimRequest> = {}) =>
  claim(query, 'postcommit', { token, ...request, ...more });

async function emit(aggregateId: string, count: number): Promise<string[]> {
  const rows = await db.query(
    `with e as (insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       select 'a', $1, 't', '{}' from generate_series(1, $2::integer) returning seq) select seq::text from e order by e.seq`,
    [aggregateId, count],
  );
  return rows.map(({ seq }) => seq);
}

describe('claim', () => {
  test('takes nothing from a relay that registered after the claim’s snapshot', async () => {
    const early = await relay('early');
    await emit('x', 3);
    const [{ definition }] = await db.query(
      `select pg_get_functiondef('postcommit.claim_many'::regproc) as definition`,
    );
    const slowly = definition
      .replace('postcommit.claim_many(', 'postcommit.claim_slowly(')
      .replace('with alive as', 'with pause as materialized (select pg_sleep(1)), alive as')
      .replace(
        'q.seq >= (select seq from ground)',
        'q.seq >= (select seq from ground) and (select count(*) from pause) = 1',
      );
    expect(slowly).toContain('pause) = 1');
    await db.query(slowly);
    const slow = query(claimSql('postcommit').replace('.claim_many(', '.claim_slowly('), [
      early,
      '0',
      10,
      5,
      [],
      1_000,
      null,
      '0',
      '0',
      '',
      false,
      false,
      1,
      [],
      'default',
    ]);
    await until(
      async () =>
        (await db.query(`select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`))
          .length === 1,
      {
        what: 'the slow claim has its snapshot',
      },
    );
    const late = await relay('late');
    expect((await claimAs(late)).rows).toHaveLength(3);
    await slow;
    const owners = await db.query('select distinct claimed_by from postcommit.outbox_queue');
    expect(owners).toEqual([{ claimed_by: late }]);
  });

  // One event alone is claimed by statements of its own, which must judge as the large one does.
  test.each([
    ['is in this relay’s hands', (me: string) => `claimed_by = ${me}`, {}, true],
    ['is in this relay’s hands, as it says', (me: string) => `claimed_by = ${me}`, { knownSeqs: ['1'] }, true],
    ['is under its token, but lost', (me: string) => `claimed_by = ${me}`, { knownSeqs: [], floor: '1' }, false],
    ['is in another one’s hands', (_me: string, other: string) => `claimed_by = ${other}`, {}, false],
    ['waits for a retry', () => `available_at = now() + interval '1 hour'`, {}, false],
    ['blocks its key', () => `available_at = 'infinity', blocking = true`, {}, false],
    ['is ready, below the floor', () => 'attempts = 0', { floor: '1' }, false],
  ])('a single event whose predecessor %s', async (_what, change, more, claimed) => {
    const [me, other] = [await relay('one'), await relay('two')];
    const [first, second] = await emit('x', 2);
    expect(first).toBe('1');
    await db.query(`update postcommit.outbox_queue set ${change(me, other)} where seq = 1`);
    const result = await claimAs(me, more);
    expect(result.rows.map(({ seq }) => seq)).toEqual(claimed ? [second] : []);
    expect(result).toMatchObject({ examined: 1, reached: second });
    const [row] = await db.query('select claimed_by from postcommit.outbox_queue where seq = 2');
    expect(row.claimed_by).toBe(claimed ? me : null);
  });

  test('a single event that has failed before, and one that another claim is just taking', async () => {
    const me = await relay('one');
    await emit('x', 1);
    await db.query(`update postcommit.outbox_queue set attempts = 2, done = '{a,b}'`);
    const client = await db.pool.connect();
    await client.query('begin; select from postcommit.outbox_queue for update');
    expect((await claimAs(me)).rows).toEqual([]);
    await client.query('commit');
    client.release();
    expect((await claimAs(me)).rows).toMatchObject([{ seq: '1', attempts: 2, done: ['a', 'b'], takenOver: false }]);
  });

  test('a single event behind one on the shelf says so', async () => {
    const me = await relay('one');
    await emit('x', 2);
    await db.query(`insert into postcommit.outbox_destinations (destination) values ('away')`);
    await db.query(
      `with gone as (delete from postcommit.outbox_queue where seq = 1 returning *)
       insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers) select 'away', seq, key, 0, 0 from gone`,
    );
    expect((await claimAs(me)).rows).toMatchObject([{ seq: '2', shelved: ['away'] }]);
  });

  test('brings the followers of what this relay holds, and not those of what another one holds', async () => {
    const [one, two] = [await relay('one'), await relay('two')];
    const [first, second, third] = await emit('x', 3);
    expect((await claimAs(one, { readyMax: 1 })).rows.map(({ seq }) => seq)).toEqual([first]);
    expect((await claimAs(two)).rows).toEqual([]);
    expect((await claimAs(one)).rows.map(({ seq }) => seq)).toEqual([second, third]);
  });

  test('after a lost answer, brings what this relay owns and does not hold, before its followers', async () => {
    const token = await relay('one');
    const [first, second, third] = await emit('x', 3);
    await claimAs(token, { readyMax: 1 }); // Its answer is lost.
    expect((await claimAs(token, { knownSeqs: [] })).rows.map(({ seq }) => seq)).toEqual([first, second, third]);
    const other = await emit('x', 1);
    // Now it holds all but the second: what follows must not pass.
    const knownSeqs = [first, third] as string[];
    expect((await claimAs(token, { knownSeqs, floor: third as string })).rows.map(({ seq }) => seq)).toEqual(other);
    expect((await claimAs(token, { knownSeqs: [...knownSeqs, ...other] })).rows.map(({ seq }) => seq)).toEqual([
      second,
    ]);
  });

  test('leaves the keys alone that it is told to, and takes unordered events as they are', async () => {
    const token = await relay('one');
    await emit('x', 2);
    await db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, ordering_key)
       select 'a', 'x', 'unordered', '{}', '' from generate_series(1, 2)`,
    );
    const [{ key }] = await db.query(`select postcommit.key_hash('a', 'x', null) as key`);
    const { rows } = await claimAs(token, { exceptKeys: [key] });
    expect(rows.map(({ type }) => type)).toEqual(['unordered', 'unordered']);
  });

  describe('with shares', () => {
    async function emitToMany(): Promise<Set<string>> {
      for (let n = 0; n < 30; n++) await emit(`aggregate ${n}`, 2);
      await db.query(
        `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, ordering_key)
         select 'a', 'x', 'unordered', '{}', '' from generate_series(1, 30)`,
      );
      return new Set((await db.query('select seq from postcommit.outbox_queue')).map(({ seq }) => seq));
    }
    const shareOf = async (token: string) => (await claimAs(token, { readyMax: 1_000, ownShards: true })).rows;

    test('live relays divide everything among them, an aggregate to each as a whole', async () => {
      const all = await emitToMany();
      const ended = await relay('ended');
      const tokens = [await relay('one'), await relay('two'), await relay('three')];
      await db.query('update postcommit.outbox_relays set ended_at = now() where token = $1', [ended]);
      const shares = [];
      for (const token of tokens) shares.push(await shareOf(token));
      expect(new Set(shares.flat().map(({ seq }) => seq))).toEqual(all);
      expect(shares.flat()).toHaveLength(all.size);
      for (const share of shares) {
        expect(share.length).toBeGreaterThan(0);
        expect(share.some(({ key }) => key === null)).toBe(true);
      }
    });

    test('the share of a relay that ends is divided anew', async () => {
      const all = await emitToMany();
      const [one, two] = [await relay('one'), await relay('two')];
      const before = await shareOf(one);
      expect(before.length).toBeLessThan(all.size);
      await db.query('update postcommit.outbox_relays set ended_at = now() where token = $1', [two]);
      expect((await shareOf(one)).length).toBe(all.size - before.length);
    });

    test('without regard to them a relay takes all there is, also a single event that is another one’s', async () => {
      const [one] = [await relay('one'), await relay('two')];
      const all = await emitToMany();
      expect((await claimAs(one, { readyMax: 1_000 })).rows).toHaveLength(all.size);
      await db.query('delete from postcommit.outbox_queue');
      for (let n = 0; n < 10; n++) {
        const [seq] = await emit(`single ${n}`, 1);
        expect((await claimAs(one)).rows).toMatchObject([{ seq }]);
      }
    });
  });

  test.each([
    ['free', null],
    ['held by a relay that is gone', -1],
  ])('is not held up by due events, %s, that wait behind one that is due later', async (_name, claimedBy) => {
    const token = await relay('one');
    const [first] = await emit('x', 40);
    await db.query(
      `update postcommit.outbox_queue
          set claimed_by = $2, available_at = now() - case when seq = $1 then interval '1 s' else interval '9 s' end`,
      [first, claimedBy],
    );
    await until(
      async () => {
        const { rows, blocked } = await claimAs(token);
        await defer(db.pool, 'postcommit', blocked);
        return rows.some(({ seq }) => seq === first);
      },
      { timeoutMs: 2_000, what: 'the first one was claimed' },
    );
  });

  test('is not held up by due events that wait behind one that is ready and not looked at', async () => {
    const token = await relay('one');
    const [first] = await emit('x', 40);
    const [other] = await emit('y', 1);
    await db.query(
      `update postcommit.outbox_queue set available_at = now() - interval '1 s' * (100 - seq) where seq <> $1`,
      [first],
    );
    await until(
      async () => {
        // The walk through the ready ones is past the first.
        const { rows, blocked } = await claimAs(token, { floor: first as string });
        await defer(db.pool, 'postcommit', blocked);
        return rows.some(({ seq }) => seq === other);
      },
      { timeoutMs: 2_000, what: 'the other one was claimed' },
    );
  });

  test('is not held up by due events that wait behind one that another relay holds', async () => {
    const [one, two] = [await relay('one'), await relay('two')];
    await emit('x', 40);
    await claimAs(two, { readyMax: 1 });
    const [other] = await emit('y', 1);
    await db.query(
      `update postcommit.outbox_queue set available_at = now() - case when seq = $1 then interval '1 s' else interval '9 s' end
        where claimed_by is null`,
      [other],
    );
    await until(
      async () => {
        const { rows, blocked } = await claimAs(one);
        await defer(db.pool, 'postcommit', blocked);
        return rows.some(({ seq }) => seq === other);
      },
      { what: 'the other one was claimed' },
    );
  });

  test.each([
    ['free', null],
    ['held by a relay that is gone', -1],
  ])('events behind a waiting one, %s, become due with it', async (_name, claimedBy) => {
    const token = await relay('one');
    const [first, second] = await emit('x', 2);
    await db.query(
      `update postcommit.outbox_queue
          set claimed_by = case when seq = $2 then $3::bigint end, available_at = case when seq = $1 then now() + interval '1 hour' end`,
      [first, second, claimedBy],
    );
    const { rows, blocked, dueInMs } = await claimAs(token);
    expect(rows).toEqual([]);
    expect(blocked).toEqual([second]);
    expect(dueInMs).toBeGreaterThan(3_500_000);
    await defer(db.pool, 'postcommit', blocked);
    const [{ same }] = await db.query('select count(distinct available_at) = 1 as same from postcommit.outbox_queue');
    expect(same).toBe(true);
  });

  test('seqs are compared as numbers, past what a JavaScript number holds', () => {
    expect(['9', '10', '9007199254740993', '9007199254740992'].sort(compareSeq)).toEqual([
      '9',
      '10',
      '9007199254740992',
      '9007199254740993',
    ]);
  });

  test('seqs past 2^53 and 2^31 stay exact', async () => {
    const token = await relay('one');
    await db.query(`select setval('postcommit.outbox_events_seq_seq', 9007199254740992)`);
    const seqs = await emit('x', 3);
    expect(seqs).toEqual(['9007199254740993', '9007199254740994', '9007199254740995']);
    const { rows, reached } = await claimAs(token);
    expect(rows.map(({ seq }) => seq)).toEqual(seqs);
    expect(reached).toBe(seqs[2]);
  });
});
