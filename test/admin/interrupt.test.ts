import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { BulkOptions, ReplayTarget } from '../../src/index.ts';
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
      'requeueUnqueued',
      () => db.query('truncate postcommit.outbox_queue').then(),
      async (options) => done(await admin().requeueUnqueued(options)),
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
    await emitAndDeliver(10);
    expect(await admin().replay({ all: true }, { after: after as string })).toMatchObject({ count: events - 2_000 });
  });

  /** Interrupts a replay after 2,000 events, as if these were delivered before the operator continues. */
  async function interruptedReplay(target: ReplayTarget): Promise<string> {
    const stop = new AbortController();
    const onProgress = (count: number) => count >= 2_000 && stop.abort();
    const { count, next } = await admin().replay(target, { signal: stop.signal, onProgress });
    expect(count).toBe(2_000);
    await settleQueue(db);
    return next as string;
  }

  async function emitAndDeliver(count: number): Promise<void> {
    await db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       select 'order', i::text, 'x', '{}' from generate_series(1, $1) i`,
      [count],
    );
    await settleQueue(db);
  }

  test.each<ReplayTarget>([{ all: true }, { type: 'x' }])(
    'a continued replay of %o does not take what was delivered since it began',
    async (target) => {
      await settleQueue(db);
      const next = await interruptedReplay(target);
      await emitAndDeliver(10);
      const again = await admin().replay(target, { after: next, signal: AbortSignal.abort() });
      expect(again).toEqual({ count: 0, interrupted: true, next });
      expect(await admin().replay(target, { after: next })).toEqual({ count: events - 2_000 });
    },
  );

  test('a continued replay takes the times of its first call, whatever relative ones mean by then', async () => {
    await db.query('truncate postcommit.outbox_queue');
    const hour = 3_600_000;
    const start = Date.now();
    await db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
       select 'order', i::text, 'x', '{}', to_timestamp($1::float8 / 1000) - interval '8 hours' + i * interval '6 seconds'
       from generate_series(1, 4800) i`,
      [start],
    );
    await settleQueue(db);
    const between = (from: number, to: number) => ({
      from: new Date(start - from * hour),
      to: new Date(start - to * hour),
    });
    const next = await interruptedReplay(between(6, 2));
    expect(await admin().replay(between(3, 1), { after: next })).toEqual({ count: 400 });
    await settleQueue(db);
    // One of them may have been relative: from is now after to.
    expect(await admin().replay(between(1, 2), { after: next })).toEqual({ count: 400 });
  });

  test('a replay does not continue with another kind of selection', async () => {
    await settleQueue(db);
    const next = await interruptedReplay({ all: true });
    const [id] = await ids();
    const from = new Date(0);
    for (const target of [{ ids: [id] }, { from }, { to: new Date() }, { type: 'x', from }]) {
      await expect(admin().replay(target, { after: next })).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_CURSOR' });
    }
    const { next: ofIds } = await admin().replay({ ids: [id] }, { signal: AbortSignal.abort() });
    await expect(admin().replay({ all: true }, { after: ofIds as string })).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_BAD_CURSOR',
    });
    expect(await admin().replay({ ids: [id] }, { after: ofIds as string })).toEqual({ count: 1 });
  });

  test('a replay does not continue with other conditions or other ids, and says so', async () => {
    await settleQueue(db);
    const refusal = {
      code: 'POSTCOMMIT_E_BAD_CURSOR',
      detail: expect.stringMatching(/^This cursor belongs to a different replay/),
    };
    const stopped = async (target: ReplayTarget) =>
      (await admin().replay(target, { signal: AbortSignal.abort() })).next as string;
    const [first, second, third] = await ids();
    const selections: ReplayTarget[] = [
      { all: true },
      { type: 'x' },
      { type: 'y' },
      { queue: 'x' },
      { aggregate: ['x'] },
      { aggregate: ['order', '1'] },
      { aggregate: ['order'] },
      { ids: [first, second] },
      { ids: [first] },
      { ids: [third] },
    ];
    for (const began of selections) {
      const after = await stopped(began);
      for (const continued of selections.filter((each) => each !== began)) {
        await expect(admin().replay(continued, { after }), JSON.stringify({ began, continued })).rejects.toMatchObject(
          refusal,
        );
      }
    }
    const after = await stopped({ ids: [first, second] });
    expect(await admin().replay({ ids: [second, first.toUpperCase(), first] }, { after })).toEqual({ count: 2 });
    const malformed = await admin()
      .replay({ all: true }, { after: 'x' })
      .catch((error) => error);
    expect(malformed).toMatchObject({ code: 'POSTCOMMIT_E_BAD_CURSOR' });
    expect(malformed.message).toContain('It is not the cursor of a replay.');
    expect(malformed.message).not.toMatch(/list|page/);
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
      () => admin().requeueUnqueued(wrong),
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
