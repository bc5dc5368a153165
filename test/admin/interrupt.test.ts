import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { BulkOptions } from '../../src/index.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { settleQueue } from '../support/settle-queue.ts';

const events = 3_500;

describe('an operation over many events', () => {
  let db: TestDatabase;
  beforeEach(async () => {
    db = await createTestDatabase();
    await db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
       select 'order', i::text, 'x', '{}', now() - interval '40 days' from generate_series(1, $1) i`,
      [events],
    );
  });
  afterEach(() => db.close());

  const admin = () => createOutbox({ db: fromPg(db.pool), notify: false }).admin;

  async function makeDeadLetter(): Promise<void> {
    await db.query(
      `insert into postcommit.outbox_dead_letters (seq, reason, attempts, key, error)
       select seq, 'rejected', 1, key, 'no' from postcommit.outbox_queue`,
    );
    await db.query('truncate postcommit.outbox_queue');
  }

  async function shelve(): Promise<void> {
    await db.query(`insert into postcommit.outbox_destinations (destination) values ('kafka')`);
    await db.query(
      `insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers)
       select 'kafka', seq, key, 0, 0 from postcommit.outbox_queue`,
    );
    await db.query('truncate postcommit.outbox_queue');
  }

  async function delay(): Promise<void> {
    await db.query(`update postcommit.outbox_queue set available_at = now() + interval '1 day'`);
  }

  const ids = async () => (await db.query('select id from postcommit.outbox_events')).map((row) => row.id);

  const operations: [
    name: string,
    prepare: () => Promise<void>,
    run: (options: BulkOptions, after?: string) => Promise<{ interrupted?: true; done: number; next?: string }>,
  ][] = [
    ['makeDue', delay, async (options) => done(await admin().makeDue({ all: true }, options))],
    ['makeDue by id', delay, async (options) => done(await admin().makeDue({ ids: await ids() }, options))],
    ['cancel', delay, async (options) => done(await admin().cancel({ type: 'x' }, { ...options, reason: 'no' }))],
    ['cancel by id', shelve, async (options) => done(await admin().cancel({ ids: await ids() }, options))],
    ['retry', makeDeadLetter, async (options) => done(await admin().retry({ all: true }, options))],
    ['discard', makeDeadLetter, async (options) => done(await admin().discard({ reason: 'rejected' }, options))],
    [
      'requeueOrphans',
      () => db.query('truncate postcommit.outbox_queue').then(),
      async (options) => done(await admin().requeueOrphans(options)),
    ],
    [
      'replay',
      () => settleQueue(db),
      async (options, after) => {
        const result = done(await admin().replay({ all: true }, { ...options, ...(after && { after }) }));
        // What is queued would be left alone: as if a relay had delivered it before the operator continues.
        await settleQueue(db);
        return result;
      },
    ],
    [
      'replay by id',
      () => settleQueue(db),
      async (options, after) => {
        const result = done(await admin().replay({ ids: await ids() }, { ...options, ...(after && { after }) }));
        await settleQueue(db);
        return result;
      },
    ],
    [
      'forget',
      shelve,
      async (options) => {
        const result = await admin().forget('kafka', options);
        return { ...result, done: result.discarded };
      },
    ],
    [
      'prune',
      () => settleQueue(db),
      async (options) => {
        const result = await admin().prune({ olderThanMs: 86_400_000, ...options });
        return { ...result, done: result.events };
      },
    ],
  ];

  function done<Result extends { count: number }>({ count, ...rest }: Result) {
    return { ...rest, done: count };
  }

  test.each(operations)(
    '%s reports its progress, stops on its signal, and continues later',
    async (_name, prepare, run) => {
      await prepare();
      expect(await run({ signal: AbortSignal.abort() })).toMatchObject({ interrupted: true, done: 0 });
      const stop = new AbortController();
      const progress: number[] = [];
      const first = await run({
        signal: stop.signal,
        onProgress(count) {
          progress.push(count);
          if (count >= 2_000) stop.abort();
        },
      });
      expect(progress).toEqual([1_000, 2_000]);
      expect(first).toMatchObject({ interrupted: true, done: 2_000 });
      const second = await run({}, first.next);
      expect(second.done).toBe(events - 2_000);
      expect(second).not.toHaveProperty('interrupted');
    },
  );

  test('a replay that fails on its way says where it continues', async () => {
    await settleQueue(db);
    const failure = new Error('of the caller');
    const error = await admin()
      .replay(
        { all: true },
        {
          onProgress(count) {
            if (count === 2_000) throw failure;
          },
        },
      )
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'POSTCOMMIT_E_REPLAY_INCOMPLETE', cause: failure });
    const [, after] =
      /2,000 events replayed, continue after (\S+)\. The error: of the caller/.exec(String(error)) ?? [];
    // As if a relay had delivered them before the operator continues.
    await settleQueue(db);
    expect(await admin().replay({ all: true }, { after: after as string })).toMatchObject({ count: events - 2_000 });
  });

  test('a replay that fails before its first chunk is completed reports the error alone', async () => {
    await settleQueue(db);
    await db.query('drop table postcommit.outbox_queue cascade');
    await expect(admin().replay({ all: true })).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
  });

  test('refuses options that it does not know', async () => {
    const wrong = { onprogress: () => {} } as BulkOptions;
    const calls = [
      () => admin().retry({ all: true }, wrong),
      () => admin().discard({ all: true }, wrong),
      () => admin().replay({ all: true }, wrong),
      () => admin().requeueOrphans(wrong),
      () => admin().makeDue({ all: true }, wrong),
      () => admin().cancel({ all: true }, wrong),
      () => admin().replay({ all: true }, { after: 'x' }),
    ];
    for (const call of calls) await expect(call()).rejects.toMatchObject({ code: /BAD_OPTION|BAD_CURSOR/ });
  });

  test('a conversion ends before its next step and leaves nothing behind', async () => {
    const stop = new AbortController();
    const steps: string[] = [];
    const onStep = (step: string) => {
      steps.push(step);
      if (step === 'validate') stop.abort();
    };
    const constraints = 'select conname from pg_constraint where conrelid = $1::regclass order by conname';
    const before = await db.query(constraints, ['postcommit.outbox_events']);
    expect(await admin().partitions.convert('day', { signal: stop.signal, onStep })).toEqual({
      unit: 'day',
      converted: false,
      current: 0,
      interrupted: true,
    });
    expect(steps).toEqual(['constrain', 'validate']);
    expect(await db.query(constraints, ['postcommit.outbox_events'])).toEqual(before);
    expect(await admin().partitions.convert('day')).toMatchObject({ converted: true });
  });
});
