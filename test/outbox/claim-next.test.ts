import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  type ClaimNextRequest,
  type ClaimNextResult,
  type ClaimRequest,
  type ClaimResult,
  claim,
  claimNext,
  claimNextSql,
} from '../../src/outbox/delivering/claim.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { seededRandom } from '../support/random.ts';
import { until, within } from '../support/wait.ts';

let db: TestDatabase;
let me: string;
let other: string;
/** The token of a relay that has ended. */
let ended: string;

beforeEach(async () => {
  db = await createTestDatabase();
  me = await relay('me');
  other = await relay('other');
  ended = await relay('ended');
  await db.query(`update postcommit.outbox_relays set ended_at = now(), ended_as = 'lost' where token = $1`, [ended]);
});
afterEach(() => db.close());

interface Queryable {
  query(config: { text: string; values: unknown[]; rowMode: 'array' }): Promise<{ rows: unknown[][] }>;
}
const on = (queryable: Queryable) => (text: string, values: unknown[]) =>
  queryable.query({ text, values, rowMode: 'array' });
const relay = (name: string) => registerRelay(db.pool, 'postcommit', { name, host: 'h', pid: 1, leaseMs: 60_000 });

const request = {
  exceptKeys: [],
  inlineBytesMax: 1_000,
  knownSeqs: undefined,
  lowWater: { mark: '0', requeues: '0', server: '' },
  targets: [],
};
const large = { floor: '0', readyMax: 10, dueMax: 5, sample: false, ownShards: false, suspectMax: 1 } as const;
const next = (more: Partial<ClaimNextRequest> = {}, queryable: Queryable = db.pool) =>
  claimNext(on(queryable), 'postcommit', { token: me, ...request, ...more });
const claimAll = (more: Partial<ClaimRequest> = {}, queryable: Queryable = db.pool) =>
  claim(on(queryable), 'postcommit', { token: me, ...request, ...large, ...more });

const seqsOf = (result: ClaimNextResult) => (typeof result === 'string' ? result : result.rows.map(({ seq }) => seq));

async function emit(aggregateId: string, count = 1): Promise<string[]> {
  const rows = await db.query(
    `with e as (insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       select 'a', $1, 't', '{}' from generate_series(1, $2::integer) returning seq) select seq::text from e order by e.seq`,
    [aggregateId, count],
  );
  return rows.map(({ seq }) => seq);
}

/** What a valid low-water mark is tied to. */
async function markOf(): Promise<{ requeues: string; server: string }> {
  const [row] = await db.query(
    'select last_value::text as requeues, postcommit.server_stamp() as server from postcommit.outbox_requeues',
  );
  return row as { requeues: string; server: string };
}

/** The place of a row changes with every update, also with one that changes nothing. */
const queueSql = 'select ctid::text, * from postcommit.outbox_queue order by seq';
const queue = () => db.query(queueSql);

async function keyOf(aggregateId: string): Promise<string> {
  const [{ key }] = await db.query(`select postcommit.key_hash('a', $1, null) as key`, [aggregateId]);
  return key;
}

async function expectNothingClaimed(answer: 'more' | 'other', more: Partial<ClaimNextRequest> = {}): Promise<void> {
  const before = await queue();
  expect(await next(more)).toBe(answer);
  expect(await queue()).toEqual(before);
}

describe('an event that is owed to targets', () => {
  for (const [state, availableAt] of [
    ['ready', null],
    ['due', '2026-01-01'],
  ]) {
    test(`is left to relays that have one of them, and holds its key for the others, while it is ${state}`, async () => {
      const [first, second] = await emit('x', 2);
      await db.query('update postcommit.outbox_queue set owed = $1, available_at = $2 where seq = $3', [
        ['kafka', 't:mail'],
        availableAt,
        first,
      ]);
      for (const targets of [[], ['hook', 't:stock']]) {
        expect((await claimAll({ targets })).rows).toEqual([]);
        expect(seqsOf(await next({ targets }))).toBe('other'); // The second one has a predecessor.
      }
      // Nor by a look for a single one, where there is nothing else.
      await db.query('delete from postcommit.outbox_queue where seq = $1', [second]);
      expect(await next({ targets: ['hook'] })).toMatchObject({ rows: [], examined: 0, dueInMs: undefined });
      const { rows } = await claimAll({ targets: ['t:mail'] });
      expect(rows).toMatchObject([{ seq: first, owed: ['kafka', 't:mail'] }]);
    });
  }
});

describe('claimNext, of one event', () => {
  async function expectSameAsClaim(more: Partial<ClaimNextRequest> = {}): Promise<ClaimResult> {
    const before = await db.query('select * from postcommit.outbox_queue');
    const result = (await next(more)) as ClaimResult;
    const after = await db.query('select * from postcommit.outbox_queue');
    expect(after).toEqual(before.map((row) => ({ ...row, claimed_by: me })));
    await db.query('update postcommit.outbox_queue set claimed_by = null');
    expect(result).toEqual(await claimAll(more));
    expect(await db.query('select * from postcommit.outbox_queue')).toEqual(after);
    return result;
  }

  test('brings all that claim would have brought', async () => {
    await db.query(
      `insert into postcommit.outbox_events
         (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, created_at,
          attempts_max)
       values ('0197b0a4-0000-7000-8000-000000000001', 'order', '7', 'order.paid', 3, 'customer', '{"a": [1]}',
               '{"traceparent": "00"}', '2026-02-03 04:05:06.789012+00', 5)`,
    );
    await db.query(`update postcommit.outbox_queue set attempts = 2, done = '{mail,search}', takeovers = 1`);
    await db.query(`update postcommit.outbox_queue set owed = '{kafka,t:stock}', replay_id = 1785000000000001`);
    const [{ key }] = await db.query(`select postcommit.key_hash('', '', 'customer') as key`);
    const result = await expectSameAsClaim({ targets: ['t:stock', 'other'] });
    expect(result).toEqual({
      rows: [
        {
          seq: '1',
          key,
          queue: 'default',
          attempts: 2,
          attemptsMax: 5,
          takenOver: false,
          takeovers: 1,
          done: ['mail', 'search'],
          owed: ['kafka', 't:stock'],
          replayId: '1785000000000001',
          id: '0197b0a4-0000-7000-8000-000000000001',
          aggregateType: 'order',
          aggregateId: '7',
          type: 'order.paid',
          schemaVersion: 3,
          orderingKey: 'customer',
          payloadJson: '{"a": [1]}',
          headersJson: '{"traceparent": "00"}',
          createdAtMs: Date.parse('2026-02-03T04:05:06.789Z') + 0.012,
          shelved: [],
        },
      ],
      examined: 1,
      reached: '1',
      dueExamined: 0,
      blocked: [],
      dueInMs: undefined,
      relays: 1,
      newSuspects: 0,
      sample: undefined,
    });
  });

  test('that has nothing but what it must have', async () => {
    await db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, ordering_key)
       values ('a', 'x', 't', 'null', '')`,
    );
    const { rows } = await expectSameAsClaim();
    expect(rows).toMatchObject([{ key: null, attempts: 0, done: [], schemaVersion: 1, headersJson: '{}' }]);
    expect(rows[0]).toMatchObject({ orderingKey: '', payloadJson: 'null' });
  });

  // A payload that repeats itself is small in the table and large as text; the other is large in both.
  test.each([
    ['as it is', 'md5(n::text)'],
    ['once unpacked', `repeat('x', 20)`],
  ])('leaves a payload behind that is too large %s', async (_what, payload) => {
    await db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       select 'a', 'x', 't', to_jsonb(string_agg(${payload}, '')) from generate_series(1, 100) n`,
    );
    const { rows } = await expectSameAsClaim();
    expect(rows).toMatchObject([{ seq: '1', type: 't', payloadJson: undefined }]);
    await db.query('update postcommit.outbox_queue set claimed_by = null');
    const inline = await expectSameAsClaim({ inlineBytesMax: 10_000 });
    expect(inline.rows[0]?.payloadJson?.length).toBeGreaterThan(1_000);
  });

  test('that was deleted from the log, brings it without an id', async () => {
    await emit('x');
    await db.query('delete from postcommit.outbox_events');
    const { rows } = await expectSameAsClaim();
    expect(rows).toMatchObject([{ seq: '1', id: '', type: '', payloadJson: undefined }]);
  });

  test('whose seq is past what a JavaScript number holds, keeps it exact', async () => {
    await db.query(`select setval('postcommit.outbox_events_seq_seq', 9007199254740992)`);
    await emit('x');
    const { rows, reached } = await expectSameAsClaim();
    expect(rows[0]?.seq).toBe('9007199254740993');
    expect(reached).toBe('9007199254740993');
  });

  test('says when the next waiting one is due', async () => {
    await emit('x', 3);
    await emit('y');
    await db.query(
      `update postcommit.outbox_queue set available_at = case seq when 1 then now() + interval '2 hours'
         when 2 then now() + interval '1 hour' else 'infinity' end where seq <= 3`,
    );
    const result = await next();
    expect(seqsOf(result)).toEqual(['4']);
    expect((result as ClaimResult).dueInMs).toBeGreaterThan(3_590_000);
    expect((result as ClaimResult).dueInMs).toBeLessThanOrEqual(3_600_000);
  });

  test('passes over what other live relays hold', async () => {
    await emit('theirs', 3);
    await db.query('update postcommit.outbox_queue set claimed_by = $1', [other]);
    const [mine] = await emit('mine');
    expect(seqsOf(await next())).toEqual([mine]);
    const owners = await db.query('select claimed_by from postcommit.outbox_queue order by seq');
    expect(owners.map(({ claimed_by }) => claimed_by)).toEqual([other, other, other, me]);
  });
});

describe('claimNext, of none', () => {
  const nothing = {
    rows: [],
    examined: 0,
    reached: undefined,
    dueExamined: 0,
    blocked: [],
    relays: 1,
    newSuspects: 0,
    sample: undefined,
  };

  test('in an empty queue', async () => {
    expect(await next()).toEqual({ ...nothing, dueInMs: undefined });
  });

  test('with one that waits: says when it is due', async () => {
    await emit('x');
    await db.query(`update postcommit.outbox_queue set available_at = now() + interval '1 minute'`);
    const before = await queue();
    const result = (await next()) as ClaimResult;
    expect(result).toMatchObject(nothing);
    expect(result.dueInMs).toBeGreaterThan(50_000);
    expect(result.dueInMs).toBeLessThanOrEqual(60_000);
    expect(await queue()).toEqual(before);
  });

  test('with those that wait for no certain time', async () => {
    await emit('x', 2);
    await db.query(`update postcommit.outbox_queue set available_at = 'infinity', blocking = seq = 1`);
    expect(await next()).toEqual({ ...nothing, dueInMs: undefined });
  });

  test('when everything is claimed by live relays', async () => {
    await emit('x', 2);
    await db.query('update postcommit.outbox_queue set claimed_by = case seq when 1 then $1::bigint else $2 end', [
      me,
      other,
    ]);
    const before = await queue();
    expect(await next()).toEqual({ ...nothing, dueInMs: undefined });
    expect(await queue()).toEqual(before);
  });
});

describe('claimNext leaves to claim', () => {
  test('several events, of one key or of two', async () => {
    await emit('x', 2);
    await expectNothingClaimed('more');
    await db.query('delete from postcommit.outbox_queue');
    await emit('x');
    await emit('y');
    await expectNothingClaimed('more');
  });

  test('one of several that another relay held when it ended', async () => {
    await emit('x', 2);
    await db.query('update postcommit.outbox_queue set claimed_by = $1 where seq = 1', [ended]);
    await expectNothingClaimed('more');
  });

  test.each([
    ['is in another relay’s hands', () => `claimed_by = ${other}`],
    ['waits for a retry', () => `available_at = now() + interval '1 hour'`],
    ['is due', () => `available_at = now() - interval '1 second'`],
    ['blocks its key', () => `available_at = 'infinity', blocking = true`],
    ['waits behind a held one', () => `available_at = 'infinity'`],
    ['waits, and belongs to another relay', () => `claimed_by = ${other}, available_at = now() + interval '1 hour'`],
  ])('an event whose predecessor %s', async (_what, change) => {
    await emit('x', 2);
    await db.query(`update postcommit.outbox_queue set ${change()} where seq = 1`);
    await expectNothingClaimed('other');
  });

  test('an event whose predecessor of two is not in its hands, while the one before that is', async () => {
    await emit('x', 3);
    await db.query(
      `update postcommit.outbox_queue set claimed_by = case seq when 1 then $1::bigint when 2 then $2 end where seq < 3`,
      [me, other],
    );
    await expectNothingClaimed('other');
  });

  test('an event beside one that is due', async () => {
    await emit('x');
    await emit('y');
    await db.query('update postcommit.outbox_queue set available_at = now() where seq = 1');
    await expectNothingClaimed('other');
  });

  test('one that is due and nothing else', async () => {
    await emit('x');
    await db.query(`update postcommit.outbox_queue set available_at = now() - interval '1 second'`);
    await expectNothingClaimed('other');
  });

  test('an event of a relay that has ended, or of an unknown one', async () => {
    await emit('x');
    for (const token of [ended, '-1']) {
      await db.query('update postcommit.outbox_queue set claimed_by = $1', [token]);
      await expectNothingClaimed('other');
    }
    expect((await claimAll()).rows).toMatchObject([{ seq: '1', takenOver: true }]);
  });

  test('everything, while there is anything on the shelf', async () => {
    await emit('x', 2);
    await db.query(
      `with gone as (delete from postcommit.outbox_queue where seq = 1 returning *)
       insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers) select 'away', seq, key, 0, 0 from gone`,
    );
    await expectNothingClaimed('other');
    await db.query('delete from postcommit.outbox_shelf');
    expect(seqsOf(await next())).toEqual(['2']);
  });
});

describe('claimNext', () => {
  test('claims the follower of what is in this relay’s hands', async () => {
    await emit('x', 3);
    await db.query('update postcommit.outbox_queue set claimed_by = $1 where seq < 3', [me]);
    expect(seqsOf(await next())).toEqual(['3']);
  });

  test('after a lost answer, trusts only what the relay says it holds', async () => {
    await emit('x', 2);
    await db.query('update postcommit.outbox_queue set claimed_by = $1 where seq = 1', [me]);
    expect(await next({ knownSeqs: [] })).toBe('more');
    await db.query(`update postcommit.outbox_queue set available_at = 'infinity' where seq = 1`);
    expect(await next({ knownSeqs: [] })).toBe('other');
    await db.query('update postcommit.outbox_queue set available_at = null where seq = 1');
    expect(seqsOf(await next({ knownSeqs: ['1'] }))).toEqual(['2']);
    expect(await next({ knownSeqs: ['2'] })).toBe('other');
  });

  test('needs no predecessor for an event without order', async () => {
    await db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, ordering_key)
       select 'a', 'x', 't', '{}', '' from generate_series(1, 2)`,
    );
    await db.query('update postcommit.outbox_queue set claimed_by = $1 where seq = 1', [other]);
    expect(seqsOf(await next())).toEqual(['2']);
  });

  test('leaves the keys alone that it is told to', async () => {
    await emit('x', 2);
    const exceptKeys = [await keyOf('x')];
    const before = await queue();
    expect(await next({ exceptKeys })).toMatchObject({ rows: [], examined: 0 });
    expect(await queue()).toEqual(before);
    const [third] = await emit('y');
    expect(seqsOf(await next({ exceptKeys }))).toEqual([third]);
    await db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, ordering_key)
       values ('a', 'x', 't', '{}', '')`,
    );
    expect(seqsOf(await next({ exceptKeys: [...exceptKeys, await keyOf('y')] }))).toEqual(['4']);
  });

  describe('below the low-water mark', () => {
    let requeues: string;
    let server: string;
    beforeEach(async () => {
      ({ requeues, server } = await markOf());
    });

    test('sees no event while the mark is valid, and every one when something came back', async () => {
      await emit('x');
      await db.query(`select nextval('postcommit.outbox_events_seq_seq')`);
      const before = await queue();
      expect(await next({ lowWater: { mark: '2', requeues, server } })).toMatchObject({ rows: [], examined: 0 });
      expect(await queue()).toEqual(before);
      expect(seqsOf(await next({ lowWater: { mark: '2', requeues: `${requeues}1`, server } }))).toEqual(['1']);
    });

    test('sees no predecessor while the mark is valid, and every one when something came back', async () => {
      await emit('x', 2);
      await db.query('update postcommit.outbox_queue set claimed_by = $1 where seq = 1', [other]);
      await expectNothingClaimed('other', { lowWater: { mark: '2', requeues: `${requeues}1`, server } });
      expect(seqsOf(await next({ lowWater: { mark: '2', requeues, server } }))).toEqual(['2']);
    });

    test('what comes back from the shelf is seen, without another mark', async () => {
      await emit('x', 2);
      await db.query(
        `with gone as (delete from postcommit.outbox_queue where seq = 1 returning *)
         insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers) select 'away', seq, key, 0, 0 from gone`,
      );
      const lowWater = { mark: '2', requeues, server };
      await db.query('update postcommit.outbox_queue set claimed_by = $1', [other]);
      expect(await next({ lowWater })).toMatchObject({ rows: [], examined: 0 });
      await db.query(
        `with gone as (delete from postcommit.outbox_shelf returning *)
         insert into postcommit.outbox_queue (seq, key) select seq, key from gone`,
      );
      expect(seqsOf(await next({ lowWater }))).toEqual(['1']);
    });
  });
});

describe('a quick claim', () => {
  const quick = (more: Partial<ClaimNextRequest> = {}) => next({ quick: true, ...more });

  test('brings the only event as any claim does, whatever else waits, is due or was left by an ended relay', async () => {
    const [waiting, due, left] = [...(await emit('w')), ...(await emit('d')), ...(await emit('l'))];
    await db.query(`update postcommit.outbox_queue set available_at = now() + interval '1 hour' where seq = $1`, [
      waiting,
    ]);
    await db.query(`update postcommit.outbox_queue set available_at = now() where seq = $1`, [due]);
    await db.query('update postcommit.outbox_queue set claimed_by = $1 where seq = $2', [ended, left]);
    const [seq] = await emit('x');
    await expectNothingClaimed('more'); // Without quick: one to take over, and one that is due.
    expect(await quick()).toMatchObject({ rows: [{ seq, type: 't', payloadJson: '{}' }], dueInMs: undefined });
    expect(await quick()).toBe('other'); // Without another event it examines everything.
  });

  test('leaves several events to claim', async () => {
    await emit('x', 2);
    await expectNothingClaimed('more', { quick: true });
  });

  test('leaves an event alone behind a predecessor in any state, and while anything is on the shelf', async () => {
    const [first] = await emit('x', 2);
    for (const state of [
      `claimed_by = ${other}`,
      `available_at = 'infinity'`,
      `available_at = now() + interval '1 hour'`,
    ]) {
      await db.query(`update postcommit.outbox_queue set claimed_by = null, available_at = null where seq = $1`, [
        first,
      ]);
      await db.query(`update postcommit.outbox_queue set ${state} where seq = $1`, [first]);
      await expectNothingClaimed('other', { quick: true });
    }
    await db.query(
      `with gone as (delete from postcommit.outbox_queue where seq = $1 returning *)
       insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers) select 'away', seq, key, 0, 0 from gone`,
      [first],
    );
    await expectNothingClaimed('other', { quick: true });
    await db.query('delete from postcommit.outbox_shelf');
    expect(seqsOf(await quick())).toHaveLength(1);
  });

  test('does not pass a predecessor that comes back from the shelf after the mark was checked', async () => {
    const [first, second] = await emit('x', 2);
    await db.query(
      `with gone as (delete from postcommit.outbox_queue where seq = $1 returning *)
       insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers) select 'away', seq, key, 0, 0 from gone`,
      [first],
    );
    const lowWater = { mark: String(second), ...(await markOf()) };
    const blocker = await db.pool.connect();
    await blocker.query('begin');
    // The statement that claims waits for this table before it takes its snapshot; the one before it does not read it.
    await blocker.query('lock table postcommit.outbox_relays in access exclusive mode');
    const claim = quick({ lowWater });
    await until(async () => (await db.query('select from pg_locks where not granted')).length > 0, {
      what: 'it waits',
    });
    await blocker.query(
      `with gone as (delete from postcommit.outbox_shelf returning *)
       insert into postcommit.outbox_queue (seq, key) select seq, key from gone`,
    );
    await blocker.query('commit');
    blocker.release();
    await claim;
    const [row] = await db.query('select claimed_by from postcommit.outbox_queue where seq = $1', [second]);
    expect(row?.claimed_by).toBeNull();
  });

  test('claims nothing from a paused queue, nor for a relay that has ended', async () => {
    await emit('x');
    await db.query(`insert into postcommit.outbox_queue_states (queue, paused_at) values ('default', now())`);
    expect(await quick()).toMatchObject({ rows: [] });
    await db.query('delete from postcommit.outbox_queue_states');
    await expect(quick({ token: ended })).rejects.toMatchObject({ code: 'PC001' });
    expect(seqsOf(await quick())).toHaveLength(1);
  });
});

describe('two that ask at once', () => {
  test('neither wait for each other nor get the same', async () => {
    await emit('x');
    const holder = await db.pool.connect();
    await holder.query('begin');
    expect(seqsOf(await next({ token: other }, holder))).toEqual(['1']);
    const answer = await within(next(), { timeoutMs: 5_000, what: 'it answered without waiting' });
    expect(answer).toBe('raced');
    await holder.query('commit');
    holder.release();
    expect(await next()).toMatchObject({ rows: [], examined: 0 });
    expect(await db.query('select claimed_by from postcommit.outbox_queue')).toEqual([{ claimed_by: other }]);
  });

  test('get it once, in every one of many rounds', async () => {
    const clients = await Promise.all([db.pool.connect(), db.pool.connect()]);
    for (let round = 0; round < 100; round++) {
      const [seq] = await emit('x');
      const answers = await Promise.all([next({ token: me }, clients[0]), next({ token: other }, clients[1])]);
      const winners = [me, other].filter((_token, n) => typeof answers[n] === 'object' && answers[n].rows.length === 1);
      expect(winners, `in round ${round}`).toHaveLength(1);
      const rows = await db.query('delete from postcommit.outbox_queue returning seq, claimed_by');
      expect(rows).toEqual([{ seq, claimed_by: winners[0] }]);
    }
    for (const client of clients) client.release();
  });

  test('and one of them has seen the queue before the other claimed and after that tries to', async () => {
    await emit('x');
    const [{ definition }] = await db.query(
      `select pg_get_functiondef('postcommit.claim_next'::regproc) as definition`,
    );
    const slowly = definition
      .replace('postcommit.claim_next(', 'postcommit.claim_slowly(')
      .replace(
        'and q.claimed_by is null and q.available_at is null',
        '$& and (select pg_advisory_xact_lock(7)::text) is not null',
      );
    expect(slowly).toContain('pg_advisory_xact_lock(7)');
    await db.query(slowly);
    const gate = await db.pool.connect();
    await gate.query('select pg_advisory_lock(7)');
    const slow = db.pool.query(claimNextSql('postcommit').replace('.claim_next(', '.claim_slowly('), [
      me,
      [],
      1_000,
      null,
      '0',
      '0',
      '',
      [],
      'default',
    ]);
    await until(
      async () =>
        (await db.query(`select from pg_stat_activity where datname = current_database() and wait_event = 'advisory'`))
          .length === 1,
      { what: 'the slow one has its snapshot' },
    );
    expect(seqsOf(await next({ token: other }))).toEqual(['1']);
    await gate.query('select pg_advisory_unlock(7)');
    gate.release();
    expect((await slow).rows).toMatchObject([{ seen: '1', claimed_seq: null }]);
    expect(await db.query('select claimed_by from postcommit.outbox_queue')).toEqual([{ claimed_by: other }]);
  });
});

interface QueuedRow {
  seq: number;
  key: 'x' | 'y' | 'z' | null;
  holder: 'none' | 'me' | 'other' | 'ended';
  when: 'ready' | 'waiting' | 'due' | 'long due' | 'infinity';
  attempts: number;
  done: string[] | null;
  replay_id: number | null;
}

const events = 8;
const queued: fc.Arbitrary<QueuedRow> = fc.record({
  seq: fc.integer({ min: 1, max: events }),
  key: fc.constantFrom('x', 'x', 'y', 'z', null),
  holder: fc.constantFrom('none', 'none', 'none', 'me', 'me', 'other', 'ended'),
  when: fc.constantFrom('ready', 'ready', 'ready', 'ready', 'waiting', 'due', 'long due', 'infinity'),
  attempts: fc.integer({ min: 0, max: 2 }),
  done: fc.constantFrom(null, ['a']),
  replay_id: fc.constantFrom(null, null, 1_785_000_000_000_001),
});
const states = fc.record({
  rows: fc.uniqueArray(queued, { selector: ({ seq }) => seq, minLength: 1, maxLength: 4 }),
  exceptKeys: fc.oneof(fc.constant<string[]>([]), fc.subarray(['x', 'y', 'z'], { maxLength: 2 })),
  shelved: fc.constantFrom(undefined, undefined, undefined, 'x'),
  knownSeqs: fc.oneof(fc.constant(undefined), fc.subarray(['1', '2', '3', '4', '5', '6', '7', '8'])),
  mark: fc.constantFrom(0, 0, 3),
  markIsValid: fc.boolean(),
});

describe('an event that is replayed', () => {
  test('is claimed with the id of its replay, alone or among others', async () => {
    const [one, two, three] = await emit('x', 3);
    const replayId = '1785000000000001';
    const setSql = 'update postcommit.outbox_queue set replay_id = $1, claimed_by = null where seq = $2';
    await db.query(setSql, [replayId, two]);
    expect((await claimAll()).rows).toMatchObject([
      { seq: one, replayId: null },
      { seq: two, replayId },
      { seq: three, replayId: null },
    ]);
    await db.query('delete from postcommit.outbox_queue where seq <> $1', [two]);
    await db.query(setSql, [replayId, two]);
    expect((await claimAll()).rows).toMatchObject([{ seq: two, replayId }]);
    await db.query(setSql, [replayId, two]);
    expect(await next()).toMatchObject({ rows: [{ seq: two, replayId }] });
  });
});

describe('whatever is in the queue', () => {
  test('claimNext claims what claim would, or nothing', async () => {
    const { seed } = seededRandom();
    const client = await db.pool.connect();
    await db.query(`insert into postcommit.outbox_destinations (destination) values ('away')`);
    await emit('x', events);
    await db.query('delete from postcommit.outbox_events where seq = 5');
    await db.query('delete from postcommit.outbox_queue');
    const { requeues, server } = await markOf();
    const keys = Object.fromEntries(await Promise.all(['x', 'y', 'z'].map(async (key) => [key, await keyOf(key)])));
    const holders = { none: null, me, other, ended };
    const times = { ready: null, waiting: '1 hour', due: '-1 minute', 'long due': '-infinity', infinity: 'infinity' };
    const seen = { one: 0, none: 0, more: 0, raced: 0, other: 0 };

    const insertSql = `insert into postcommit.outbox_queue (seq, key, claimed_by, available_at, attempts, done, replay_id)
      select r.seq, r.key, r.claimed_by,
             case when r.wait like '%infinity' then r.wait::timestamptz else now() + r.wait::interval end, r.attempts, r.done, r.replay_id
        from jsonb_to_recordset($1::jsonb)
          as r (seq bigint, key bigint, claimed_by bigint, wait text, attempts integer, done text[], replay_id bigint)`;
    const shelveSql = `insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers)
      values ('away', 0, $1, 0, 0)`;

    const property = fc.asyncProperty(states, async ({ rows, exceptKeys, shelved, knownSeqs, mark, markIsValid }) => {
      const given = rows.map(({ key, holder, when, ...row }) => ({
        ...row,
        key: key && keys[key],
        claimed_by: holders[holder],
        wait: times[when],
      }));
      const more = {
        exceptKeys: exceptKeys.map((key) => keys[key]),
        knownSeqs,
        lowWater: { mark: String(mark), requeues: markIsValid ? requeues : `${requeues}1`, server },
      };
      // One transaction, so that it is the same time for both.
      await client.query('begin');
      try {
        await client.query(insertSql, [JSON.stringify(given)]);
        if (shelved) await client.query(shelveSql, [keys[shelved]]);
        const before = (await client.query(queueSql)).rows;
        await client.query('savepoint state');
        const result = await next(more, client);
        const after = (await client.query(queueSql)).rows;
        if (typeof result === 'string') {
          seen[result]++;
          expect(after).toEqual(before);
          return;
        }
        seen[result.rows.length === 1 ? 'one' : 'none']++;
        await client.query('rollback to savepoint state');
        expect(result).toEqual(await claimAll(more, client));
        const afterClaim = (await client.query(queueSql)).rows;
        const withoutPlace = (row: { ctid: string }) => ({ ...row, ctid: undefined });
        expect(after.map(withoutPlace)).toEqual(afterClaim.map(withoutPlace));
      } finally {
        await client.query('rollback');
      }
    });
    await fc.assert(property, { seed, numRuns: 600 });
    client.release();
    const { raced, ...answers } = seen;
    expect(raced).toBe(0);
    for (const [answer, count] of Object.entries(answers)) expect(count, answer).toBeGreaterThan(10);
  });
});
