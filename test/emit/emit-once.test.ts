import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { describe, expect, inject, test } from 'vitest';
import { createOutbox, fromPg, type OutboxEvent } from '../../src/index.ts';
import { RoleScenario } from '../database/role-scenario.ts';
import { usePartitionedOutbox } from '../outbox/partitioned-outbox.ts';
import { postgresVersions } from '../support/postgres-versions.ts';
import { until, within } from '../support/wait.ts';

const event = (id: string, payload: unknown = 1): OutboxEvent & { id: string } => ({
  id,
  type: 'x',
  aggregate: ['a', '1'],
  payload,
});

describe.each(postgresVersions)('emitOnce on PostgreSQL %i', (version) => {
  const scene = usePartitionedOutbox(version);

  async function begin(
    isolation = 'read committed',
  ): Promise<{ tx: pg.PoolClient; pid: number; end(how: string): Promise<void> }> {
    const tx = await scene.db.pool.connect();
    await tx.query(`begin isolation level ${isolation}`);
    const end = async (how: string) => {
      await tx.query(how);
      tx.release();
    };
    return { tx, pid: (tx as unknown as { processID: number }).processID, end };
  }

  const once = (given: OutboxEvent & { id: string }) =>
    scene.outbox.transaction(async (tx) => (await scene.outbox.emitOnce(tx, given)).written);
  const waits = (pid: number, forPid: number) =>
    until(
      async () =>
        (await scene.db.query('select $2::integer = any (pg_blocking_pids($1)) as yes', [pid, forPid]))[0].yes,
      { what: `${pid} waits for ${forPid}` },
    );
  const payloads = async () =>
    (await scene.db.query('select payload from postcommit.outbox_events order by seq')).map((row) => row.payload);

  describe.each(['none', 'day'] as const)('partitions: %s', (partitions) => {
    test('writes an id once, and says so', async () => {
      await scene.begin(partitions);
      const [first, second, third] = [randomUUID(), randomUUID(), randomUUID()];
      expect(await once(event(first, 1))).toBe(true);
      expect(await once(event(first.toUpperCase(), 'again'))).toBe(false);
      const results = await scene.outbox.transaction((tx) =>
        scene.outbox.emitOnce(tx, [event(second, 2), event(first, 'again'), event(third, 3)]),
      );
      expect(results).toEqual([
        { id: second, written: true },
        { id: first, written: false },
        { id: third, written: true },
      ]);
      expect(await payloads()).toEqual([1, 2, 3]);
      expect(await scene.outbox.transaction((tx) => scene.outbox.emitOnce(tx, []))).toEqual([]);
      expect(await scene.deliver()).toEqual([1, 2, 3]);
    });

    test('from SQL', async () => {
      await scene.begin(partitions);
      const id = randomUUID();
      const call = `select postcommit.emit_once($1, 'x', 'a', '1', '{"total": 9}', headers => '{"h": "1"}') as written`;
      expect(await scene.db.query(call, [id])).toEqual([{ written: true }]);
      expect(await scene.db.query(call, [id])).toEqual([{ written: false }]);
      const rows = await scene.db.query('select id, payload, headers, schema_version from postcommit.outbox_events');
      expect(rows).toEqual([{ id, payload: { total: 9 }, headers: { h: '1' }, schema_version: 1 }]);
      const twice = [event(id), event(randomUUID())].map(({ id }) => ({
        id,
        aggregate_type: 'a',
        aggregate_id: '1',
        event_type: 'x',
      }));
      const [{ count }] = await scene.db.query('select cardinality(postcommit.emit_once($1)) as count', [
        JSON.stringify([...twice, ...twice]),
      ]);
      expect(count).toBe(1);
    });

    test.each([
      ['commit', false],
      ['rollback', true],
    ])('waits for a concurrent transaction with the same id: %s', async (end, written) => {
      await scene.begin(partitions);
      // So that the next partition is known to every transaction from here on.
      if (partitions === 'day') await scene.outbox.admin.partitions.rotate();
      const id = randomUUID();
      const [first, second] = [await begin(), await begin()];
      expect(await scene.outbox.emitOnce(first.tx, event(id, 1))).toEqual({ id, written: true });
      if (partitions === 'day') {
        // What the second writes goes into another partition, whose index knows nothing of the first.
        const rotation = await scene.outbox.admin.partitions.rotate({ patienceMs: 0 });
        expect(rotation).toMatchObject({ opened: expect.any(Number) });
      }
      const emitted = scene.outbox.emitOnce(second.tx, event(id, 2));
      await waits(second.pid, first.pid);
      await first.end(end);
      expect(await emitted).toEqual({ id, written });
      await second.end('commit');
      expect(await payloads()).toEqual([written ? 2 : 1]);
    });

    test('many at once write one event', async () => {
      await scene.begin(partitions);
      const ids = [randomUUID(), randomUUID(), randomUUID()];
      const one = () =>
        scene.outbox.transaction((tx) => scene.outbox.emitOnce(tx, ids.map((id) => event(id)).reverse()));
      const rounds = await Promise.all(Array.from({ length: 8 }, one));
      expect(rounds.flat().filter(({ written }) => written)).toHaveLength(3);
      expect(await payloads()).toHaveLength(3);
    });

    test('waits for an emit of the same id, too', async () => {
      await scene.begin(partitions);
      const id = randomUUID();
      const [first, second] = [await begin(), await begin()];
      // Of another aggregate, so that it is not the aggregate's lock that they meet at.
      await scene.outbox.emit(first.tx, { ...event(id), aggregate: ['a', '2'] });
      const emitted = scene.outbox.emitOnce(second.tx, event(id));
      await waits(second.pid, first.pid);
      await first.end('commit');
      expect(await emitted).toEqual({ id, written: false });
      await second.end('commit');
    });

    test('an older snapshot writes no second event', async () => {
      await scene.begin(partitions);
      const id = randomUUID();
      const late = await begin('repeatable read');
      await late.tx.query('select 1');
      await once(event(id));
      const code = partitions === 'day' ? 'POSTCOMMIT_E_NEEDS_READ_COMMITTED' : '40001';
      await expect(scene.outbox.emitOnce(late.tx, event(id))).rejects.toMatchObject({ code });
      await late.end('rollback');
      expect(await payloads()).toEqual([1]);
    });
  });

  test('finds an id in an older partition, and after a conversion', async () => {
    await scene.begin('none');
    const [first, second] = [randomUUID(), randomUUID()];
    await once(event(first));
    await scene.outbox.admin.partitions.convert('day');
    expect(await once(event(first))).toBe(false);
    expect(await once(event(second))).toBe(true);
    await scene.outbox.admin.partitions.rotate();
    expect(await once(event(second))).toBe(false);
    // The reason for all this: what services do on a log of one table fails on a partitioned one.
    const insert = `insert into postcommit.outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
                    values ($1, 'a', '1', 'x', '1') on conflict (id) do nothing`;
    await expect(scene.db.query(insert, [first])).rejects.toMatchObject({ code: '42P10' });
  });

  test('a function that inserts with ON CONFLICT (id) keeps the log from being converted', async () => {
    await scene.begin('none');
    await scene.db.query(`
      create function emit_mine(id uuid) returns void language plpgsql as $$
      begin
        insert into postcommit.outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
          values (id, 'a', '1', 'x', '1')
          ON CONFLICT ( id ) do nothing;
      end $$`);
    const refused = scene.outbox.admin.partitions.convert('day');
    await expect(refused).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_CANNOT_PARTITION',
      message: expect.stringContaining('function public.emit_mine(uuid) inserts into the log with ON CONFLICT (id)'),
    });
    await scene.db.query('drop function emit_mine(uuid)');
    expect(await scene.outbox.admin.partitions.convert('day')).toMatchObject({ converted: true });
  });

  test('refuses what cannot be emitted once', async () => {
    await scene.begin('none');
    const { tx, end } = await begin();
    const { id, ...withoutId } = event(randomUUID());
    const refused = [
      [scene.outbox.emitOnce(tx, withoutId as never), 'POSTCOMMIT_E_BAD_EVENT', 'emitOnce() needs an id'],
      [scene.outbox.emitOnce(tx, event('not a uuid')), 'POSTCOMMIT_E_BAD_ID', 'Got "not a uuid"'],
      [scene.outbox.emitOnce(tx, [event(id), event(id)]), 'POSTCOMMIT_E_DUPLICATE_ID', `The id ${id} appears twice`],
      [
        scene.outbox.emitOnce(
          tx,
          Array.from({ length: 1_001 }, () => event(randomUUID())),
        ),
        'POSTCOMMIT_E_TOO_MANY_EVENTS',
        'at most 1000 events in a call. Got 1001.',
      ],
    ] as const;
    for (const [call, code, words] of refused) {
      await expect(call).rejects.toMatchObject({ code, message: expect.stringContaining(words) });
    }
    await end('commit');
    const idle = await scene.db.pool.connect();
    await expect(scene.outbox.emitOnce(idle, event(id))).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_NOT_A_TRANSACTION',
    });
    idle.release();
    expect(await payloads()).toEqual([]);
  });

  test.each(['none', 'day'] as const)(
    'a rollback to a savepoint takes it back, and nothing of emit: %s',
    async (partitions) => {
      await scene.begin(partitions);
      const id = randomUUID();
      const results = await scene.outbox.transaction(async (tx, emit) => {
        await emit({ type: 'x', aggregate: ['a', '1'], payload: 1 });
        await tx.query('savepoint s');
        const first = await scene.outbox.emitOnce(tx, event(id, 'taken back'));
        await tx.query('rollback to savepoint s');
        // The lock of the id was released: another transaction may write the event.
        const other = await once(event(id, { by: 'another' }));
        const second = await scene.outbox.emitOnce(tx, event(id, 'again'));
        return [first.written, other, second.written];
      });
      expect(results).toEqual([true, true, false]);
      expect(await payloads()).toEqual([{ by: 'another' }, 1]);
    },
  );

  test('after an event of its aggregate it can deadlock, and one of the two transactions fails as a whole', async () => {
    await scene.begin('none');
    const id = randomUUID();
    const [first, second] = [await begin(), await begin()];
    await scene.outbox.emit(first.tx, { type: 'x', aggregate: ['a', '1'], payload: 'before' });
    // The second has locked the id and waits for the aggregate.
    const secondOnce = scene.outbox.emitOnce(second.tx, event(id, 'second'));
    await waits(second.pid, first.pid);
    const firstOnce = scene.outbox.emitOnce(first.tx, event(id, 'first'));
    const ends = [
      { once: firstOnce, end: first.end, payloads: ['before', 'first'] },
      { once: secondOnce, end: second.end, payloads: ['second'] },
    ].map(async ({ once, end, payloads }) => {
      const code = await once.then(
        () => 'written',
        (error) => error.code,
      );
      await end(code === 'written' ? 'commit' : 'rollback');
      return { code, payloads };
    });
    const outcomes = await Promise.all(ends);
    expect(outcomes.map(({ code }) => code).sort()).toEqual(['40P01', 'written']);
    expect(await payloads()).toEqual(outcomes.find(({ code }) => code === 'written')?.payloads);
  });

  test('follows what emit was given before in the same transaction', async () => {
    await scene.begin('none');
    await scene.outbox.transaction(async (tx, emit) => {
      await emit({ type: 'x', aggregate: ['a', '1'], payload: 1 });
      await scene.outbox.emitOnce(tx, event(randomUUID(), 2));
      await emit({ type: 'x', aggregate: ['a', '1'], payload: 3 });
    });
    expect(await payloads()).toEqual([1, 2, 3]);
  });
});

describe('emitOnce as a role that may only emit', () => {
  test('works, and learns no more than whether the id exists', async () => {
    const scenario = await RoleScenario.create(inject('serverUrl'));
    try {
      const pool = scenario.pool('emitter');
      const outbox = createOutbox<pg.PoolClient>({ db: fromPg(pool), notify: false });
      const id = randomUUID();
      for (const written of [true, false]) {
        const result = outbox.transaction((tx) => outbox.emitOnce(tx, event(id)));
        expect(await within(result, { what: 'the emitter has emitted' })).toEqual({ id, written });
      }
      const sql = `select postcommit.emit_once($1, 'x', 'a', '1', 'null') as written`;
      expect((await pool.query(sql, [id])).rows).toEqual([{ written: false }]);
    } finally {
      await scenario.close();
    }
  });
});
