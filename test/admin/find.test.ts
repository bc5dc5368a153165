import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { OutboxAdmin } from '../../src/admin/admin.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { deferred } from '../support/wait.ts';
import { Scene } from './scene.ts';

describe('admin.find', () => {
  let scene: Scene;

  beforeEach(async () => {
    scene = await Scene.create();
  });

  afterEach(async () => {
    await scene.close();
  });

  test('tells the story of two failed attempts and a success', async () => {
    const before = Date.now();
    const id = await scene.emitOne({
      aggregate: ['order', '42'],
      payload: { does: 'fail', times: 2 },
      headers: { tenant: 'acme' },
      schemaVersion: 3,
    });
    await scene.relay({ retry: { delaysMs: [1, 1] }, name: 'first relay' });
    await scene.untilStatus('SENT', 1);

    const story = await scene.admin.find(id);
    expect(story).toEqual({
      id,
      seq: await scene.seqOf(id),
      type: 'order.created',
      aggregate: { type: 'order', id: '42' },
      key: 'order:42',
      queue: 'default',
      schemaVersion: 3,
      payload: { does: 'fail', times: 2 },
      headers: { tenant: 'acme' },
      headersJson: '{"tenant": "acme"}',
      payloadJson: '{"does": "fail", "times": 2}',
      payloadCut: false,
      payloadBytes: 28,
      progress: [],
      sameId: [],
      status: 'SENT',
      createdAt: expect.any(Date),
      attempts: 3,
      failures: [1, 2].map((attempt) => ({
        attempt,
        at: expect.any(Date),
        target: 'work',
        code: 'POSTCOMMIT_E_HANDLER_FAILED',
        error: `attempt ${attempt} failed as scripted`,
        relay: 'first relay',
      })),
      deliveries: [{ at: expect.any(Date), attempts: 3, targets: ['work'], relay: 'first relay' }],
      done: [],
      edits: [],
      owed: [],
      unqueued: false,
      waitingFor: [],
    });
    const times = [story?.createdAt, ...(story?.failures ?? []).map(({ at }) => at), story?.deliveries[0]?.at];
    const milliseconds = times.map((time) => (time as Date).getTime());
    expect(milliseconds).toEqual([...milliseconds].sort((a, b) => a - b));
    expect(Math.abs((milliseconds[0] as number) - before)).toBeLessThan(60_000);
  });

  test('finds by seq, and by id in any case', async () => {
    const id = await scene.emitOne();
    const seq = await scene.seqOf(id);
    expect((await scene.admin.find(seq))?.id).toBe(id);
    expect((await scene.admin.find(`000${seq}`))?.id).toBe(id);
    expect((await scene.admin.find(id.toUpperCase()))?.seq).toBe(seq);
  });

  test('keeps every digit of a seq past 2^53', async () => {
    await scene.useHugeSeqs();
    const [first, second] = await scene.emit([{}, {}]);
    expect((await scene.admin.find('9007199254741003'))?.id).toBe(second);
    expect(await scene.admin.find(second as string)).toMatchObject({
      seq: '9007199254741003',
      waitingBehind: { id: first, seq: '9007199254741002' },
    });
  });

  test('leaves out a payload that PostgreSQL cannot write as text', async () => {
    const id = await scene.emitOne();
    // As for an array of 8,300 times 1e131071, which takes seconds and a gigabyte of memory.
    const query = (text: string, values: unknown[] = []) => {
      if (values[1] === 'true') throw Object.assign(new Error('out of memory'), { code: '54000' });
      return scene.db.pool.query(text, values);
    };
    const admin = new OutboxAdmin({ db: { query }, schema: 'postcommit', notify: false });
    const absent = { payload: undefined, payloadJson: '', payloadCut: true, payloadBytes: null };
    expect(await admin.find(id)).toMatchObject({ id, status: 'PENDING', ...absent });
    const whole = { payload: {}, payloadJson: '{}', payloadCut: false, payloadBytes: 2 };
    expect(await scene.admin.find(id)).toMatchObject({ id, ...whole });
  });

  test('answers nothing for an event that does not exist', async () => {
    expect(await scene.admin.find('0198c5a2-7d9e-7cc3-98c4-dc0c0c07398f')).toBeUndefined();
    expect(await scene.admin.find('9223372036854775807')).toBeUndefined();
  });

  test('refuses what is neither an id nor a seq', async () => {
    const malformed = ['', 'abc', '-1', '1.5', '7\0', '7\n', '9223372036854775808', '0198c5a2', null, 7] as string[];
    for (const reference of malformed) {
      await expect(scene.admin.find(reference), JSON.stringify(reference)).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_BAD_ID',
        message: expect.not.stringContaining('written'),
      });
    }
  });

  test('tells what a pending event waits for, and until when', async () => {
    const availableAt = new Date(Date.now() + 3_600_000);
    const [front, behind, other, unordered, keyed] = (await scene.emit([
      { availableAt },
      {},
      { aggregate: ['order', '2'] },
      { key: null },
      { key: 'tenant-7' },
    ])) as [string, string, string, string, string];
    const story = await scene.admin.find(front);
    expect(story).toMatchObject({ status: 'PENDING', availableAt, attempts: 0, failures: [], deliveries: [] });
    expect(story).not.toHaveProperty('waitingBehind');
    expect(story).not.toHaveProperty('holder');
    expect(story).not.toHaveProperty('deadLetter');
    expect(await scene.admin.find(behind)).toMatchObject({
      status: 'PENDING',
      waitingBehind: { id: front, seq: await scene.seqOf(front) },
    });
    expect(await scene.admin.find(other)).not.toHaveProperty('waitingBehind');
    expect(await scene.admin.find(unordered)).toMatchObject({ key: null });
    expect(await scene.admin.find(keyed)).toMatchObject({ key: 'tenant-7' });
  });

  test('names the relay that holds an event', async () => {
    const id = await scene.emitOne({ payload: { does: 'hang' } });
    const relay = await scene.relay({ name: 'holding relay' });
    await scene.untilStatus('PROCESSING', 1);
    expect(await scene.admin.find(id)).toMatchObject({
      status: 'PROCESSING',
      holder: { token: relay.stats().token, name: 'holding relay', pid: process.pid, host: expect.any(String) },
    });
  });

  test('tells which targets have a dead letter and which do not', async () => {
    const succeeded = deferred();
    await scene.relay({
      handlers: {
        'order.created': {
          mail: () => succeeded.resolve(),
          ledger: async () => {
            await succeeded.promise;
            throw new Error('the ledger is closed');
          },
        },
      },
    });
    const id = await scene.emitOne();
    await scene.untilStatus('FAILED', 1);
    expect(await scene.admin.find(id)).toMatchObject({
      status: 'FAILED',
      done: ['mail'],
      attempts: 1,
      failures: [{ target: 'ledger', error: 'the ledger is closed' }],
      deadLetter: {
        at: expect.any(Date),
        reason: 'exhausted',
        attempts: 1,
        error: 'the ledger is closed',
        blocking: false,
      },
    });
  });

  test('keeps the errors from before a retry in front of those after it', async () => {
    const id = await scene.emitOne({ payload: { does: 'fail' } });
    const patient = await scene.relay({ retry: { delaysMs: [1] } });
    await scene.untilStatus('FAILED', 1);
    await patient.stop();
    await scene.admin.retry({ ids: [id] });
    await scene.relay({ retry: { delaysMs: [] } });
    await scene.untilStatus('FAILED', 1);
    const story = await scene.admin.find(id);
    expect(story?.failures.map(({ attempt }) => attempt)).toEqual([1, 2, 1]);
    const { events } = await scene.admin.list();
    expect(events).toMatchObject([{ id, attempts: 1, lastError: 'attempt 1 failed as scripted' }]);
  });
});

describe('admin without its database', () => {
  test('reports a pool that has ended, and a server that is unreachable', async () => {
    const ended = new pg.Pool({ connectionString: 'postgres://user@127.0.0.1:1/nowhere' });
    await ended.end();
    const closed = createOutbox({ db: fromPg(ended) }).admin;
    await expect(closed.counts()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_CLIENT_CLOSED' });
    await expect(closed.retry({ all: true })).rejects.toMatchObject({ code: 'POSTCOMMIT_E_CLIENT_CLOSED' });
    const pool = new pg.Pool({ connectionString: 'postgres://user@127.0.0.1:1/nowhere' });
    const unreachable = createOutbox({ db: fromPg(pool) }).admin;
    await expect(unreachable.list()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' });
    await expect(unreachable.replay({ all: true })).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE',
    });
    await pool.end();
  });
});

describe('admin without its tables', () => {
  test('says which command makes them', async () => {
    const database = await createTestDatabase({ migrate: false });
    const { admin } = createOutbox({ db: fromPg(database.pool) });
    const id = '0198c5a2-7d9e-7cc3-98c4-dc0c0c07398f';
    const calls: [string, () => Promise<unknown>][] = [
      ['find', () => admin.find(id)],
      ['list', () => admin.list({ from: new Date() })],
      ['deadLetters', () => admin.deadLetters()],
      ['retry', () => admin.retry({ ids: [id] })],
      ['retry all', () => admin.retry({ all: true })],
      ['discard', () => admin.discard({ type: 'x' })],
      ['replay', () => admin.replay({ ids: ['1'] })],
      ['replay all', () => admin.replay({ all: true })],
      ['counts', () => admin.counts()],
      ['relays', () => admin.relays()],
      ['destinations', () => admin.destinations()],
      ['pauseDestination', () => admin.pauseDestination('kafka')],
      ['resumeDestination', () => admin.resumeDestination('kafka')],
    ];
    for (const [name, call] of calls) {
      await expect(call(), name).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_MIGRATION_MISSING',
        message: expect.stringContaining('postcommit migrate'),
      });
    }
    await database.close();
  });
});
