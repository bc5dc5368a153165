import type pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { migrate } from '../../src/index.ts';
import { claim } from '../../src/outbox/delivering/claim.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { settle } from '../../src/outbox/delivering/settle.ts';
import { LowWater } from '../../src/relay/lane/low-water.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait.ts';

const writers = 4;
let db: TestDatabase;
let token: string;
let open: (pg.PoolClient | undefined)[];
let water: LowWater;

beforeEach(async () => {
  db = await createTestDatabase();
  token = await registerRelay(db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 600_000 });
  open = new Array(writers).fill(undefined);
  water = new LowWater();
});
afterEach(async () => {
  for (const client of open) client?.release(true);
  await db.close();
});

const query = (text: string, values: unknown[]) => db.pool.query({ text, values, rowMode: 'array' });

async function emitOpen(writer: number, aggregate: string): Promise<void> {
  const client = open[writer] ?? (await db.pool.connect());
  if (!open[writer]) await client.query('begin');
  open[writer] = client;
  await client.query(`select postcommit.emit('t', 'a', $1, '{}')`, [aggregate]);
}

async function end(writer: number, how: 'commit' | 'rollback'): Promise<void> {
  await open[writer]?.query(how);
  open[writer]?.release();
  open[writer] = undefined;
}

async function claimSome(readyMax: number): Promise<string[]> {
  const result = await claim(query, 'postcommit', {
    token,
    floor: '0',
    readyMax,
    dueMax: 5,
    exceptKeys: [],
    inlineBytesMax: 1_000,
    knownSeqs: undefined,
    lowWater: water.mark,
    sample: true,
    ownShards: false,
    suspectMax: 1,
    targets: [],
  });
  if (result.reached) water.seen(result.reached, result.rows.length);
  if (result.sample) water.sampled(result.sample);
  return result.rows.map(({ seq }) => seq);
}

/** What the mark promises, asked in one snapshot. */
async function expectNothingBelow(): Promise<void> {
  const { mark, requeues } = water.mark;
  const [row] = await db.query(
    `select (select min(seq)::text from postcommit.outbox_queue) as lowest, last_value::text as requeues from postcommit.outbox_requeues`,
  );
  if (row.requeues === requeues && row.lowest !== null) expect(BigInt(row.lowest)).toBeGreaterThanOrEqual(BigInt(mark));
}

const deadLetter = (seq: string) =>
  db.query(
    `with gone as (delete from postcommit.outbox_queue where seq = $1 returning *)
     insert into postcommit.outbox_dead_letters (seq, reason, attempts, key, error)
     select seq, 'rejected', 1, key, 'e' from gone`,
    [seq],
  );
const requeueDead = `with gone as (delete from postcommit.outbox_dead_letters returning *)
  insert into postcommit.outbox_queue (seq, key) select seq, key from gone`;
const shelve = (seq: string) =>
  db.query(
    `with gone as (delete from postcommit.outbox_queue where seq = $1 returning *)
     insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers) select 'd', seq, key, 0, 0 from gone`,
    [seq],
  );
const unshelve = `with gone as (delete from postcommit.outbox_shelf returning *)
  insert into postcommit.outbox_queue (seq, key) select seq, key from gone`;
const replayOne = `select postcommit.replay(array(
  select e.seq from postcommit.outbox_events e where not exists (select from postcommit.outbox_queue q where q.seq = e.seq)
  and not exists (select from postcommit.outbox_shelf h where h.seq = e.seq)
  and not exists (select from postcommit.outbox_dead_letters d where d.seq = e.seq) order by random() limit 1))`;

describe('the low-water mark', () => {
  test('nothing is ever in the queue below it, whatever commits late or comes back', async () => {
    const { next: random, pick } = seededRandom();
    const held: string[] = [];
    let risen = 0;
    // The mark does not rise while a transaction of that moment is under way anywhere on the server that all tests share.
    const deadline = performance.now() + 60_000;
    for (let step = 0; step < 600 || (risen === 0 && performance.now() < deadline); step++) {
      const before = water.mark.mark;
      const dice = random();
      const writer = Math.floor(random() * writers);
      // Each writer has aggregates of its own: one connection must not wait for another's lock.
      if (dice < 0.3) await emitOpen(writer, `${writer}-${Math.floor(random() * 3)}`);
      else if (dice < 0.55) await end(writer, random() < 0.9 ? 'commit' : 'rollback');
      else if (dice < 0.75) held.push(...(await claimSome(1 + Math.floor(random() * 10))));
      else if (dice < 0.93) {
        const done = held.splice(0, 1 + Math.floor(random() * held.length));
        await settle(
          query,
          'postcommit',
          token,
          done.map((seq) => ({ seq, targets: ['t'] })),
        );
      } else if (held.length > 0 && dice < 0.98) {
        await pick([deadLetter, shelve])(held.splice(Math.floor(random() * held.length), 1)[0] as string);
      } else await db.query(pick([requeueDead, unshelve, replayOne]));
      if (water.mark.mark !== before) risen++;
      await expectNothingBelow();
    }
    expect(risen).toBeGreaterThan(0);
  }, 120_000);

  test('an event that commits late is not passed by a later one of its aggregate', async () => {
    await emitOpen(0, 'late');
    const other = async () => {
      await db.query(`select postcommit.emit('t', 'a', 'other', '{}')`);
      const seqs = await claimSome(10);
      await settle(
        query,
        'postcommit',
        token,
        seqs.map((seq) => ({ seq, targets: ['t'] })),
      );
    };
    for (let n = 0; n < 5; n++) await other();
    expect(water.mark.mark).toBe('0'); // The first one's transaction is still under way.
    await end(0, 'commit');
    await db.query(`select postcommit.emit('t', 'a', 'late', '{}')`);
    expect(await claimSome(10)).toEqual(['1', '7']);
  });

  test('what comes back from the shelf is seen by the very next claim', async () => {
    await db.query(`select postcommit.emit('t', 'a', 'x', '{}'), postcommit.emit('t', 'a', 'y', '{}')`);
    const [first] = await claimSome(1);
    await shelve(first as string);
    const rest = await claimSome(10);
    await settle(
      query,
      'postcommit',
      token,
      rest.map((seq) => ({ seq, targets: ['t'] })),
    );
    await until(
      async () => {
        await claimSome(10);
        return BigInt(water.mark.mark) > 1n;
      },
      { what: 'the mark has risen' }, // Not while a transaction of that moment is under way anywhere on the server.
    );

    await db.query(unshelve);
    expect(await claimSome(10)).toEqual([first]);
  });

  test('a plain INSERT has its transaction’s id before it draws a seq', async () => {
    const client = await db.pool.connect();
    const insert = client.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       values ('a', 'x', 't', (select to_jsonb(pg_sleep(1)::text)))`,
    );
    await until(
      async () => {
        const [{ n }] = await db.query(
          `select count(*)::integer as n from pg_stat_activity
            where datname = current_database() and wait_event = 'PgSleep' and backend_xid is not null`,
        );
        return n === 1;
      },
      { what: 'it has an id while its payload is still computed' },
    );
    await insert;
    client.release();
  });

  /** Some events have come and gone, and the mark has risen. */
  async function riseWater(): Promise<void> {
    await db.query(`select postcommit.emit('t', 'a', n::text, '{}') from generate_series(1, 5) n`);
    const seqs = await claimSome(10);
    await settle(
      query,
      'postcommit',
      token,
      seqs.map((seq) => ({ seq, targets: ['t'] })),
    );
    await until(
      async () => {
        await claimSome(10);
        return BigInt(water.mark.mark) > 1n;
      },
      { timeoutMs: 30_000, what: 'the mark has risen' },
    );
  }

  test('holds nothing back after TRUNCATE ... RESTART IDENTITY', async () => {
    await riseWater();
    await db.query('truncate postcommit.outbox_events, postcommit.outbox_queue restart identity');
    // In one transaction past the mark, so that the sequence is above it when the next claim looks.
    await db.query(`select postcommit.emit('t', 'a', 'x', '{}') from generate_series(1, 9)`);
    expect(await claimSome(10)).toEqual(['1', '2', '3', '4', '5', '6', '7', '8', '9']);
  });

  test('holds nothing back when the sequence goes back without it', async () => {
    await riseWater();
    await db.query('delete from postcommit.outbox_events');
    await db.query('alter table postcommit.outbox_events alter seq restart');
    await db.query(`select postcommit.emit('t', 'a', 'x', '{}')`);
    expect(await claimSome(10)).toEqual(['1']);
  });

  test('holds nothing back in a schema that was dropped and made again', async () => {
    await riseWater();
    await db.query('drop schema postcommit cascade');
    await migrate({ connectionString: db.url });
    token = await registerRelay(db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 600_000 });
    await db.query(`select postcommit.emit('t', 'a', 'x', '{}') from generate_series(1, 9)`);
    expect(await claimSome(10)).toHaveLength(9);
  });

  test('is not used by another server, nor by one that was started again', async () => {
    await riseWater();
    await db.query('insert into postcommit.outbox_queue (seq, key) values (1, 7)');
    expect(await claimSome(10)).toEqual([]);
    const { mark, requeues, server } = water.mark;
    const usable = async (given: string) =>
      (await db.query('select postcommit.usable_low_water($1, $2, $3) as mark', [mark, requeues, given]))[0].mark;
    expect(await usable(server)).toBe(mark);
    const [started, timeline] = server.split('/');
    expect(timeline).toMatch(/^[0-9A-F]{8}$/);
    expect(await usable(`${started}1/${timeline}`)).toBe('0');
    expect(await usable(`${started}/00000002`)).toBe('0');
    water.sampled({ requeues, server: `${started}/00000002`, lowest: null, xmin: '9', xmax: '9' });
    expect(water.mark.mark).toBe('0');
  });

  test('a requeue that is counted during a sample and commits after the next one is seen', async () => {
    await db.query(`select postcommit.emit('t', 'a', 'x', '{}'), postcommit.emit('t', 'a', 'y', '{}')`);
    const [first] = await claimSome(1);
    await shelve(first as string);
    await settle(query, 'postcommit', token, [{ seq: (await claimSome(10))[0] as string, targets: ['t'] }]);
    await claimSome(10);
    // The sample waits between its snapshot and its reads while an event is requeued and not committed yet.
    const [{ definition }] = await db.query(
      `select pg_get_functiondef('postcommit.sample_queue'::regproc) as definition`,
    );
    const slow = definition.replace("'lowest', (", "'pause', (select pg_sleep(1)::text), 'lowest', (");
    expect(slow).not.toBe(definition);
    await db.query(slow);
    const sampling = claimSome(10);
    await until(
      async () =>
        (await db.query(`select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`))
          .length === 1,
      { what: 'the sample has its snapshot' },
    );
    const client = await db.pool.connect();
    await client.query('begin');
    await client.query(unshelve);
    await sampling;
    await db.query(definition);
    await claimSome(10);
    await client.query('commit');
    client.release();
    expect(await claimSome(10)).toEqual([first]);
  });
});
