import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createOutbox, type EventDetails, fromPg, migrate } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
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
    expect(stdout).toContain(`\n  "payload": {"n": 12345678901234567890, "list": [1.50, {"deep": -1${'0'.repeat(400)}`);
    expect(JSON.parse(stdout)).toMatchObject({ payloadCut: false, payloadBytes: expect.any(Number) });
    expect(JSON.parse(stdout)).not.toHaveProperty('payloadJson');
  });

  test('shows times that JavaScript does not read', async () => {
    const other = await createTestDatabase();
    // The zone of a session has seconds for times before it was standardised.
    await other.query(
      `do $$ begin execute format('alter database %I set timezone = ''Europe/Amsterdam''', current_database()); end $$`,
    );
    await other.query('alter table postcommit.outbox_events drop constraint outbox_events_limits_check');
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

describe.each(postgresVersions)('a payload that an emitter can insert, on PostgreSQL %i', (version) => {
  let db: TestDatabase;
  beforeAll(async () => {
    db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
  });
  afterAll(async () => {
    await db.close();
  });

  /** Shows an event with this payload, an SQL expression: as text and with --json. */
  async function show(expression: string): Promise<{ text: string; json: string; story: EventDetails }> {
    const [{ seq }] = await db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       values ('order', '1', 'x', ${expression}) returning seq::text`,
    );
    const here = (...args: string[]) => runHere(args, { env: { DATABASE_URL: db.url } });
    const [text, json] = [await here('events', seq), await here('events', seq, '--json')];
    for (const { code, stderr } of [text, json]) expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const story = await createOutbox({ db: fromPg(db.pool) }).admin.find(seq);
    return { text: text.stdout, json: json.stdout, story: story as EventDetails };
  }

  test('and that has a string of 16 MB is shown, its beginning as text and all of it with --json', async () => {
    const { text, json } = await show(`jsonb_build_object('x', repeat('y', 16000000))`);
    expect(text.length).toBeLessThan(10_000);
    expect(text).toContain(`{\n    "x": "${'y'.repeat(3_000)}`);
    expect(text).toContain('… (truncated; --json prints all of it)');
    expect(JSON.parse(json)).toMatchObject({ payloadCut: false, payloadBytes: 16_000_009 });
    expect(JSON.parse(json).payload.x).toHaveLength(16_000_000);
  });

  test('and that is nested deeply is shown, its beginning as text and all of it with --json', async () => {
    const { text, json } = await show(`(repeat('[', 2500) || repeat('0,', 150000) || '0' || repeat(']', 2500))::jsonb`);
    expect(text.length).toBeLessThan(10_000);
    expect(text).toContain('[\n    [\n      [\n');
    expect(JSON.parse(json).payload.flat(2_500)).toHaveLength(150_001);
  });

  test('and whose text is over 16,777,216 characters is cut, and says so', async () => {
    const { text, json, story } = await show(`(select jsonb_agg('1e131071'::numeric) from generate_series(1, 200))`);
    expect(text).toContain('26,214,800 bytes; --json prints the first 16,777,216 characters');
    const cut = { payloadCut: true, payloadBytes: 26_214_800 };
    expect(JSON.parse(json)).toMatchObject({ ...cut, payload: null });
    expect(JSON.parse(json).payloadJson).toHaveLength(16_777_216);
    expect(story).toMatchObject({ ...cut, payload: undefined, payloadJson: expect.stringMatching(/^\[1000/) });
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

  test('is made due or cancelled with all events of it, and says so', async () => {
    const delayed = () =>
      db.query(
        `insert into postcommit.outbox_queue (seq, available_at)
         select seq, now() + interval '1 day' from postcommit.outbox_events
         on conflict (seq) do update set available_at = excluded.available_at`,
      );
    const told = `2 events have the id ${id} and all were changed: seqs 1, ${second}`;
    for (const command of ['make-due', 'cancel']) {
      await delayed();
      const { code, stdout } = await here('events', command, id, '--yes');
      expect({ code, told: stdout.includes(told) }, stdout).toEqual({ code: 0, told: true });
      await delayed();
      expect(JSON.parse((await here('events', command, id, '--yes', '--json')).stdout)).toMatchObject({
        count: 2,
        duplicates: [{ id, seqs: ['1', second] }],
      });
    }
    await db.query('truncate postcommit.outbox_dead_letters');
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
