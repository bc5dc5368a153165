import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { deregisterRelay } from '../../src/outbox/delivering/deregister-relay.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { recordRun } from '../../src/outbox/maintaining/record-run.ts';
import { releaseDuty, takeDuty } from '../../src/outbox/maintaining/take-duty.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

let db: TestDatabase;
let tokens: string[];

beforeAll(async () => {
  db = await createTestDatabase();
});

afterAll(() => db.close());

beforeEach(async () => {
  await db.query('truncate postcommit.outbox_leadership, postcommit.outbox_maintenance');
  tokens = await Promise.all(
    ['a', 'b', 'c', 'd'].map((name) =>
      registerRelay(db.pool, 'postcommit', { name, host: 'h', pid: 1, leaseMs: 3_600_000 }),
    ),
  );
});

const take = (n: number, leaseMs = 3_600_000) =>
  takeDuty(db.pool, 'postcommit', { name: 'maintenance', owner: tokens[n] ?? '' }, leaseMs);

const expire = () => db.query(`update postcommit.outbox_leadership set lease_until = now() - interval '1 second'`);

const run = (n: number, epoch: string) =>
  recordRun(
    db.pool,
    'postcommit',
    { name: 'maintenance', owner: tokens[n] ?? '', epoch },
    { task: 'prune', durationMs: 1, changed: 0 },
  );

describe('a duty', () => {
  test('has one owner, which keeps it by asking again', async () => {
    expect(await take(0)).toBe('1');
    expect(await take(1)).toBeUndefined();
    expect(await take(0)).toBe('1');
  });

  test('of several that ask at once, for the first time or when it is free, one gets it', async () => {
    const answers = await Promise.all([0, 1, 2, 3].map((n) => take(n)));
    expect(answers.filter((epoch) => epoch !== undefined)).toEqual(['1']);
    await expire();
    const owner = answers.indexOf('1');
    const others = await Promise.all([0, 1, 2, 3].filter((n) => n !== owner).map((n) => take(n)));
    expect(others.filter((epoch) => epoch !== undefined)).toEqual(['2']);
  });

  test('continues under the same epoch when the lease ran out and no other relay took it', async () => {
    await take(0);
    await expire();
    expect(await take(0)).toBe('1');
  });

  test('is free at once when its owner gave it up, or ended; the epoch grows all the same', async () => {
    await take(0);
    await releaseDuty(db.pool, 'postcommit', { name: 'maintenance', owner: tokens[0] ?? '' });
    expect(await take(1)).toBe('2');
    await deregisterRelay(db.pool, 'postcommit', tokens[1] ?? '');
    expect(await take(1)).toBeUndefined();
    expect(await take(2)).toBe('3');
  });

  test('is not released by a relay that does not have it', async () => {
    await take(0);
    await releaseDuty(db.pool, 'postcommit', { name: 'maintenance', owner: tokens[1] ?? '' });
    expect(await take(1)).toBeUndefined();
  });

  test('a deposed owner writes nothing down', async () => {
    await take(0);
    expect(await run(0, '1')).toBe(true);
    await expire();
    await take(1);
    expect(await run(0, '1')).toBe(false);
    expect(await run(0, '2')).toBe(false);
    expect(await run(1, '2')).toBe(true);
    expect(await db.query('select epoch from postcommit.outbox_maintenance')).toEqual([{ epoch: '2' }]);
  });
});
