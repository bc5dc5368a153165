import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { claim } from '../../src/outbox/delivering/claim.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { pruneEvents } from '../../src/outbox/maintaining/prune-events.ts';
import { replay } from '../../src/outbox/operating/replay.ts';
import { requeue } from '../../src/outbox/operating/requeue.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf, sharedVersion } from '../support/postgres-versions.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait.ts';
import { PruneModel } from './prune-model.ts';

const dayMs = 86_400_000;
let db: TestDatabase;

beforeEach(async () => {
  db = await createTestDatabase();
});

afterEach(() => db.close());

/** Delivered events, so old. */
async function delivered(count: number, age = '2 days'): Promise<void> {
  await db.query(
    `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
     select 'thing', n::text, 'x', '1', now() - $2::interval from generate_series(1, $1) n`,
    [count, age],
  );
  await db.query(`
    with gone as (delete from postcommit.outbox_queue returning seq)
    insert into postcommit.outbox_deliveries (relay, attempts, targets, seqs)
    select 1, 1, '{t}', range_agg(int8range(seq, seq, '[]')) from gone group by seq / 100`);
}

async function pruneAll(rowsMax: number, keepMs = dayMs): Promise<number> {
  let pruned = 0;
  for (let after = '0', finished = false; !finished; ) {
    const chunk = await pruneEvents(db.pool, 'postcommit', { after, keepMs, rowsMax });
    pruned += chunk.pruned;
    after = chunk.reached;
    finished = chunk.finished;
  }
  return pruned;
}

async function rows(table: string): Promise<number> {
  return (await db.query(`select count(*)::integer as n from postcommit.${table}`))[0].n;
}

/** Queue rows whose event is not in the log: a prune took what was still needed. */
const unqueued = `select q.seq from postcommit.outbox_queue q
  where not exists (select from postcommit.outbox_events e where e.seq = q.seq)`;

describe('what goes and what stays', () => {
  test('is as the model says, whatever changes between the chunks', { timeout: 60_000 }, async () => {
    const model = new PruneModel(db, seededRandom());
    const { random, events } = model;
    await model.fill(150);
    for (let cycle = 0; cycle < 3; cycle++) {
      for (let after = '0', finished = false; !finished; ) {
        const before = new Set((await db.query('select seq from postcommit.outbox_events')).map(({ seq }) => seq));
        const chunk = await pruneEvents(db.pool, 'postcommit', {
          after,
          keepMs: dayMs,
          rowsMax: random.integer(3, 25),
        });
        after = chunk.reached;
        finished = chunk.finished;
        const left = new Set((await db.query('select seq from postcommit.outbox_events')).map(({ seq }) => seq));
        const gone = [...before].filter((seq) => !left.has(seq));
        expect(gone.length).toBe(chunk.pruned);
        for (const seq of gone) expect(events.get(seq)).toSatisfy((event) => model.mayGo(event));
        for (const seq of gone) events.delete(seq);
        for (let n = random.integer(0, 4); n > 0 && events.size > 0; n--) await model.change();
      }
    }
    // Once more without any change, as long as something goes: then nothing is left that may go, unless it lies behind
    // a stretch of young ones, which ends the search.
    while ((await pruneAll(1_000)) > 0);
    const left = (await db.query('select seq from postcommit.outbox_events')).map(({ seq }) => seq);
    for (const seq of left) {
      const event = events.get(seq);
      expect(event && model.mayGo(event), JSON.stringify(event)).toBe(false);
    }
    for (const event of events.values()) if (!model.mayGo(event)) expect(left).toContain(event.seq);

    // The history of a pruned event is gone, and that of a kept event is complete.
    expect(await db.query(unqueued)).toEqual([]);
    const lost = `(select seq from postcommit.outbox_%s where seq not in (select seq from postcommit.outbox_events))`;
    for (const table of ['failures', 'dead_letters', 'shelf'])
      expect(await db.query(lost.replace('%s', table))).toEqual([]);
    const [{ empty }] = await db.query(`
      select count(*)::integer as empty from postcommit.outbox_deliveries d
       where not exists (select from postcommit.outbox_events e where d.seqs @> e.seq)`);
    expect(empty).toBe(0);
    for (const { seq, place } of events.values()) {
      if (place !== 'delivered' || !left.includes(seq)) continue;
      expect(
        await db.query('select from postcommit.outbox_deliveries where seqs @> $1::bigint', [seq]),
        seq,
      ).not.toEqual([]);
    }
  });

  test('a dry run counts the same and changes nothing', async () => {
    const model = new PruneModel(db, seededRandom());
    await model.fill(80);
    const request = { after: '0', keepMs: dayMs, rowsMax: 1_000 };
    const would = await pruneEvents(db.pool, 'postcommit', { ...request, dryRun: true });
    expect(await rows('outbox_events')).toBe(80);
    const did = await pruneEvents(db.pool, 'postcommit', request);
    expect(did).toEqual(would);
    const expected = [...model.events.values()].filter((event) => event.age === 'old');
    const at = (...places: string[]) => expected.filter(({ place }) => places.includes(place)).length;
    expect(did).toMatchObject({
      pruned: at('delivered', 'discarded'),
      queued: at('queued', 'replayed'),
      shelved: at('shelved'),
      dead: at('dead', 'held'),
    });
  });

  test('keep nothing (0): what is delivered goes at once, what is not stays', async () => {
    await delivered(10, '1 millisecond');
    await db.query(`select postcommit.emit('x', 'thing', '1', '1')`);
    expect(await pruneAll(1_000, 0)).toBe(10);
    expect(await rows('outbox_events')).toBe(1);
  });

  test('a clock that was a year ahead for a while does not end it', async () => {
    await delivered(30, '-365 days');
    await delivered(20);
    await delivered(10, '1 hour');
    expect(await pruneAll(7)).toBe(20);
    expect(await rows('outbox_events')).toBe(40);
  });

  test('chunk by chunk, none larger than asked for, and survivors are passed over once', async () => {
    await delivered(250);
    await db.query(
      `insert into postcommit.outbox_queue (seq) select seq from postcommit.outbox_events where seq % 2 = 0`,
    );
    const seen: number[] = [];
    let after = '0';
    for (let finished = false; !finished; ) {
      const chunk = await pruneEvents(db.pool, 'postcommit', { after, keepMs: dayMs, rowsMax: 100 });
      seen.push(chunk.pruned + chunk.queued);
      after = chunk.reached;
      finished = chunk.finished;
    }
    expect(seen).toEqual([100, 100, 50]);
    const again = await pruneEvents(db.pool, 'postcommit', { after, keepMs: dayMs, rowsMax: 100 });
    expect(again).toMatchObject({ pruned: 0, queued: 0, finished: true });
  });

  test('needs READ COMMITTED, and says so', async () => {
    const client = await db.pool.connect();
    try {
      await client.query('begin isolation level repeatable read');
      await expect(pruneEvents(client, 'postcommit', { after: '0', keepMs: 0, rowsMax: 1 })).rejects.toThrow(
        /READ COMMITTED/,
      );
      await client.query('rollback');
    } finally {
      client.release();
    }
  });
});

describe('beside the work', () => {
  let pruner: pg.Client;

  beforeEach(async () => {
    pruner = new pg.Client({ connectionString: db.url });
    await pruner.connect();
  });

  afterEach(() => pruner.end());

  test('a chunk that is not committed yet makes no emitter and no claim wait', async () => {
    await delivered(200);
    await pruner.query('begin');
    expect(await pruneEvents(pruner, 'postcommit', { after: '0', keepMs: dayMs, rowsMax: 100 })).toMatchObject({
      pruned: 100,
    });
    const client = new pg.Client({ connectionString: db.url, statement_timeout: 2_000 });
    await client.connect();
    try {
      await client.query(`select postcommit.emit('x', 'thing', '1', '1')`);
      const token = await registerRelay(client, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 60_000 });
      const query = (text: string, values: unknown[]) => client.query({ text, values, rowMode: 'array' as const });
      const request = {
        token,
        floor: '0',
        readyMax: 10,
        dueMax: 10,
        exceptKeys: [],
        inlineBytesMax: 1_000,
        knownSeqs: undefined,
        lowWater: { mark: '0', requeues: '0', server: '' },
        sample: false,
        ownShards: false,
        suspectMax: 1,
        targets: [],
      } as const;
      expect((await claim(query, 'postcommit', request)).rows).toHaveLength(1);
    } finally {
      await client.end();
    }
    await pruner.query('commit');
    expect(await rows('outbox_events')).toBe(101);
  });

  /** Until a statement waits for a lock. */
  async function untilWaiting(): Promise<void> {
    const sql = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
    await until(async () => (await db.query(sql)).length > 0, { what: 'a statement waits for a lock' });
  }

  test('an event that is replayed while it is pruned is either gone or in queue and log', async () => {
    await delivered(1);
    const chunk = { after: '0', limit: 10 };
    await pruner.query('begin');
    await pruneEvents(pruner, 'postcommit', { after: '0', keepMs: dayMs, rowsMax: 10 });
    const replayed = replay(db.pool, 'postcommit', { seqs: ['1'] }, chunk);
    await untilWaiting();
    await pruner.query('commit');
    expect(await replayed).toMatchObject({ count: 0 });
    expect(await db.query(unqueued)).toEqual([]);

    await delivered(1);
    await pruner.query('begin');
    expect(await replay(pruner, 'postcommit', { seqs: ['2'] }, chunk)).toMatchObject({ count: 1 });
    const pruned = pruneEvents(db.pool, 'postcommit', { after: '0', keepMs: dayMs, rowsMax: 10 });
    await untilWaiting();
    await pruner.query('commit');
    expect(await pruned).toMatchObject({ pruned: 0, queued: 1 });
    expect(await db.query(unqueued)).toEqual([]);
  });

  test('a discarded dead letter that is retried while it is pruned likewise', async () => {
    await delivered(2);
    await db.query(`insert into postcommit.outbox_dead_letters (seq, reason, attempts, error, discarded_at)
                    select seq, 'rejected', 1, 'no', now() from postcommit.outbox_events`);
    const chunk = { after: '0', limit: 10 };
    await pruner.query('begin');
    await requeue(pruner, 'postcommit', { seqs: ['2'] }, chunk);
    // It does not wait for the operator: the event stays this time.
    expect(await pruneEvents(db.pool, 'postcommit', { after: '0', keepMs: dayMs, rowsMax: 10 })).toMatchObject({
      pruned: 1,
      dead: 1,
    });
    await pruner.query('commit');
    expect(await db.query(unqueued)).toEqual([]);

    await delivered(1);
    await db.query(`insert into postcommit.outbox_dead_letters (seq, reason, attempts, error, discarded_at)
                    select max(seq), 'rejected', 1, 'no', now() from postcommit.outbox_events`);
    await pruner.query('begin');
    await pruneEvents(pruner, 'postcommit', { after: '2', keepMs: dayMs, rowsMax: 10 });
    const retried = requeue(db.pool, 'postcommit', { seqs: ['3'] }, chunk);
    await untilWaiting();
    await pruner.query('commit');
    expect(await retried).toMatchObject({ count: 0 });
    expect(await db.query(unqueued)).toEqual([]);
  });
});

// Up to PostgreSQL 16 the planner takes `delete ... where seq = any (500 values)` for cheaper by a scan of this log than by
// its index. Later versions do not.
describe.each(postgresVersions)('what a chunk reads, on PostgreSQL %i', (version) => {
  test('a chunk reads neither the whole log nor the whole queue, also when nothing was ever analyzed', async () => {
    if (version !== sharedVersion) {
      await db.close();
      db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    }
    await delivered(20_000);
    await db.query('insert into postcommit.outbox_queue (seq) select generate_series(2, 20000, 2)');
    // Records that reach over the whole log, as those of events that were tried again and again.
    await db.query(`insert into postcommit.outbox_deliveries (relay, attempts, targets, seqs)
                    select 1, 2, '{t}', range_agg(int8range(n, n, '[]')) from generate_series(1, 20000, 2) n group by n % 100`);
    // A connection of its own: before PostgreSQL 15 these statistics include earlier transactions of the session.
    const pruner = new pg.Client({ connectionString: db.url });
    await pruner.connect();
    try {
      await pruner.query('begin');
      for (let after = '0', chunk = 0; chunk < 3; chunk++) {
        const { pruned, reached } = await pruneEvents(pruner, 'postcommit', { after, keepMs: dayMs, rowsMax: 1_000 });
        expect(pruned).toBe(500);
        after = reached;
      }
      const { rows: reads } = await pruner.query(
        `select relname, (seq_tup_read + idx_tup_fetch)::integer as n from pg_stat_xact_user_tables
          where relname in ('outbox_events', 'outbox_queue')`,
      );
      // Of 3,000 events looked at, once or twice each; all of the log for each chunk would be 60,000.
      for (const { relname, n } of reads) expect(n, relname).toBeLessThan(15_000);
    } finally {
      await pruner.end();
    }
  });
});
