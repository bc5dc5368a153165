import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createOutbox, fromPg, migrate } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { settleQueue } from '../support/settle-queue.ts';
import { runHere } from './fake-terminal.ts';

const id = '0198c5a2-7d9e-7cc3-98c4-dc0c0c07398f';
const payload = '{"n": 12345678901234567890, "list": [1.50, {"deep": -1e400}, {}, []], "text": "a\\"b:{,"}';
const headers = '{"n": 5, "big": 12345678901234567890, "text": "x", "none": null}';

describe('postcommit events', () => {
  let db: TestDatabase;
  beforeAll(async () => {
    db = await createTestDatabase();
    await db.query(
      `insert into postcommit.outbox_events (id, aggregate_type, aggregate_id, event_type, payload, headers)
       values ($1, 'order', '1', 'x', $2, $3)`,
      [id, payload, headers],
    );
  });
  afterAll(() => db.close());
  const here = (...args: string[]) => runHere(args, { env: { DATABASE_URL: db.url } });

  test('shows headers that are not text, and numbers as they are stored', async () => {
    const { code, stdout, stderr } = await here('events', id);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain('"n": 5');
    expect(stdout.match(/12345678901234567890/g)).toHaveLength(2);
    expect(stdout).toContain('1.50');
    expect(stdout).toContain(`-1${'0'.repeat(400)}`);
  });

  test('--json has the payload and the headers as PostgreSQL writes them', async () => {
    const { code, stdout } = await here('events', id, '--json');
    expect(code).toBe(0);
    const [row] = await db.query(
      `select $1::jsonb -> 'payload' = payload and $1::jsonb -> 'headers' = headers as same,
              $1::jsonb ->> 'id' as id from postcommit.outbox_events`,
      [stdout],
    );
    expect(row).toEqual({ same: true, id });
    expect(stdout).toContain(
      '  "payload": {\n    "n": 12345678901234567890,\n    "list": [\n      1.50,\n      {\n        "deep": -1',
    );
    expect(stdout).toContain('      {},\n      []\n    ],\n');
    expect(JSON.parse(stdout)).not.toHaveProperty('payloadJson');
  });

  test('shows times that JavaScript does not read', async () => {
    const other = await createTestDatabase();
    // The zone of a session has seconds for times before it was standardised.
    await other.query(
      `do $$ begin execute format('alter database %I set timezone = ''Europe/Amsterdam''', current_database()); end $$`,
    );
    await other.query('alter table postcommit.outbox_events drop constraint outbox_events_created_at_check');
    const times = ['1900-01-01 12:00:00Z', '0044-03-15 12:00:00Z BC', '12026-01-01 00:00:00Z', 'infinity', '-infinity'];
    for (const time of times) {
      await other.query(
        `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
         values ('order', '1', 'x', '{}', $1)`,
        [time],
      );
    }
    const run = (...args: string[]) => runHere(args, { env: { DATABASE_URL: other.url } });
    const { code, stdout } = await run('events', '--order', 'oldest', '--json');
    expect(code).toBe(0);
    expect(JSON.parse(stdout).events.map(({ createdAt }: { createdAt: string }) => createdAt)).toEqual([
      '1900-01-01T12:00:00.000Z',
      '-000043-03-15T12:00:00.000Z',
      '+012026-01-01T00:00:00.000Z',
      '+275760-09-13T00:00:00.000Z',
      '-271821-04-20T00:00:00.000Z',
    ]);
    expect((await run('events')).code).toBe(0);
    for (const seq of ['1', '2', '3', '4', '5']) expect((await run('events', seq)).code, seq).toBe(0);
    await other.close();
  });
});

describe('an id that several partitions have', () => {
  let db: TestDatabase;
  const second = '1000000000000';
  beforeAll(async () => {
    db = await createTestDatabase();
    await migrate({ connectionString: db.url, partitions: 'day' });
    const { admin } = createOutbox({ db: fromPg(db.pool) });
    const insert = `insert into postcommit.outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
                    values ($1, 'order', '1', $2, '{}')`;
    await db.query(insert, [id, 'order.first']);
    await admin.partitions.rotate();
    await db.query(insert, [id, 'order.second']);
    await settleQueue(db);
  });
  afterAll(() => db.close());
  const here = (...args: string[]) => runHere(args, { env: { DATABASE_URL: db.url } });

  test('shows all events of it, each by its seq', async () => {
    const { code, stdout } = await here('events', id);
    expect(code).toBe(0);
    for (const part of ['2 events have this id', 'order.first', 'order.second', `replay ${second}`]) {
      expect(stdout).toContain(part);
    }
    expect(JSON.parse((await here('events', id, '--json')).stdout)).toMatchObject({ seq: '1', sameId: [second] });
    expect((await here('events', second)).stdout).not.toContain('order.first');
  });

  test('is replayed with all events of it, and says so', async () => {
    const { code, stdout } = await here('replay', id);
    expect(code).toBe(0);
    expect(stdout).toContain('2 delivered events put back into the queue');
    expect(stdout).toContain(`2 events have the id ${id} and all were changed: seqs 1, ${second}`);
    await settleQueue(db);
    expect(JSON.parse((await here('replay', id, '--json')).stdout)).toEqual({
      count: 2,
      duplicates: [{ id, seqs: ['1', second] }],
    });
    await settleQueue(db);
    expect(JSON.parse((await here('replay', second, '--json')).stdout)).toEqual({ count: 1 });
  });
});
