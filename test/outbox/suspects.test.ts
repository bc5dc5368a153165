import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type ClaimRequest, claim, claimNext } from '../../src/outbox/claim.ts';
import { end, register } from '../../src/outbox/relays.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

let db: TestDatabase;
beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.close());

const query = (text: string, values: unknown[]) => db.pool.query({ text, values, rowMode: 'array' });
const relay = () => register(db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 60_000 });
const request = {
  floor: '0',
  readyMax: 10,
  dueMax: 5,
  exceptKeys: [],
  inlineBytesMax: 1_000,
  holding: undefined,
  lowWater: { mark: '0', returns: '0', server: '' },
  survey: false,
  ownShards: false,
  suspectMax: 1,
  targets: [],
} as const;
const claimAs = (token: string, more: Partial<ClaimRequest> = {}) =>
  claim(query, 'postcommit', { token, ...request, ...more });

/** A relay that claims what it can get and ends without giving anything back. */
async function claimAndEnd(): Promise<{ seq: string; rescues: number }[]> {
  const token = await relay();
  const { rows } = await claimAs(token);
  await end(db.pool, 'postcommit', token);
  return rows.map(({ seq, rescues }) => ({ seq, rescues }));
}
const emit = (aggregateId: string, count = 1) =>
  db.query(`select postcommit.emit('t', 'a', $1, '{}') from generate_series(1, $2::integer)`, [aggregateId, count]);
const queue = () => db.query('select seq, lease, rescues from postcommit.outbox_queue order by seq');

describe('events that were held when a relay ended', () => {
  test('once: are claimed together as before', async () => {
    await emit('x', 2);
    await emit('y');
    await claimAndEnd();
    const { rows, newSuspects } = await claimAs(await relay());
    expect(rows).toMatchObject(['1', '2', '3'].map((seq) => ({ seq, rescued: true, rescues: 1 })));
    expect(newSuspects).toBe(0);
  });

  test('twice: become suspects, of which a relay claims one at a time, and only what nothing stands before', async () => {
    await emit('x', 2);
    await emit('y');
    await claimAndEnd();
    await claimAndEnd();
    const token = await relay();
    expect(await claimAs(token)).toMatchObject({ rows: [], newSuspects: 3 });
    expect(await queue()).toEqual(['1', '2', '3'].map((seq) => ({ seq, lease: null, rescues: 2 })));
    expect((await claimAs(token)).rows).toMatchObject([{ seq: '1', rescued: false, rescues: 2 }]);
    expect((await claimAs(token, { suspectMax: 0 })).rows).toEqual([]);
    // Another relay holds none yet. The second event of x stands behind the first.
    expect((await claimAs(await relay())).rows).toMatchObject([{ seq: '3' }]);
    expect((await claimAs(await relay())).rows).toEqual([]);
  });

  test('others are claimed beside a suspect, and do not pass it in its key', async () => {
    await emit('x', 2);
    await db.query('update postcommit.outbox_queue set rescues = 2 where seq = 1');
    await emit('y', 2);
    const token = await relay();
    expect((await claimAs(token, { suspectMax: 0 })).rows.map(({ seq }) => seq)).toEqual(['3', '4']);
    expect((await claimAs(token)).rows.map(({ seq }) => seq)).toEqual(['1', '2']);
  });

  test('a suspect that ends one more relay is counted, and is told to the relay that takes it over', async () => {
    await emit('x');
    await db.query('update postcommit.outbox_queue set rescues = 2');
    expect(await claimAndEnd()).toEqual([{ seq: '1', rescues: 2 }]);
    expect((await claimAs(await relay())).rows).toMatchObject([{ seq: '1', rescued: true, rescues: 3 }]);
  });

  test('a claim of one event leaves suspects to the other claim', async () => {
    await emit('x');
    await db.query('update postcommit.outbox_queue set rescues = 2');
    const next = { token: await relay(), exceptKeys: [], inlineBytesMax: 1_000, holding: undefined, targets: [] };
    const answer = await claimNext(query, 'postcommit', { ...next, lowWater: request.lowWater });
    expect(answer).toBe('other');
  });

  test('a suspect in backoff waits for its time', async () => {
    await emit('x');
    await db.query(`update postcommit.outbox_queue set rescues = 3, available_at = now() + interval '1 hour'`);
    const token = await relay();
    expect((await claimAs(token)).rows).toEqual([]);
    await db.query(`update postcommit.outbox_queue set available_at = now() - interval '1 second'`);
    expect((await claimAs(token)).rows).toMatchObject([{ seq: '1' }]);
  });
});
