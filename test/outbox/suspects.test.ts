import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { beginTrial } from '../../src/outbox/delivering/begin-trial.ts';
import { type ClaimRequest, claim, claimNext } from '../../src/outbox/delivering/claim.ts';
import { deregisterRelay } from '../../src/outbox/delivering/deregister-relay.ts';
import { type Failure, fail } from '../../src/outbox/delivering/fail.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

let db: TestDatabase;
beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.close());

const query = (text: string, values: unknown[]) => db.pool.query({ text, values, rowMode: 'array' });
const relay = () => registerRelay(db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 60_000 });
const request = {
  floor: '0',
  readyMax: 10,
  dueMax: 5,
  exceptKeys: [],
  inlineBytesMax: 1_000,
  knownSeqs: undefined,
  lowWater: { mark: '0', requeues: '0', server: '' },
  sample: false,
  ownShards: false,
  suspectMax: 1,
  targets: [],
} as const;
const claimAs = (token: string, more: Partial<ClaimRequest> = {}) =>
  claim(query, 'postcommit', { token, ...request, ...more });

/** A relay that claims what it can get and ends without giving anything back. */
async function claimAndEnd(): Promise<{ seq: string; takeovers: number }[]> {
  const token = await relay();
  const { rows } = await claimAs(token);
  await deregisterRelay(db.pool, 'postcommit', token);
  return rows.map(({ seq, takeovers }) => ({ seq, takeovers }));
}
const emit = (aggregateId: string, count = 1) =>
  db.query(`select postcommit.emit('t', 'a', $1, '{}') from generate_series(1, $2::integer)`, [aggregateId, count]);
const queue = () => db.query('select seq, claimed_by, takeovers from postcommit.outbox_queue order by seq');

describe('events that were held when a relay ended', () => {
  test('once: are claimed together as before', async () => {
    await emit('x', 2);
    await emit('y');
    await claimAndEnd();
    const { rows, newSuspects } = await claimAs(await relay());
    expect(rows).toMatchObject(['1', '2', '3'].map((seq) => ({ seq, takenOver: true, takeovers: 1 })));
    expect(newSuspects).toBe(0);
  });

  test('twice: become suspects, of which a relay claims few at a time, and only what nothing stands before', async () => {
    await emit('x', 2);
    for (const key of ['y', 'z']) await emit(key);
    await claimAndEnd();
    await claimAndEnd();
    const token = await relay();
    expect(await claimAs(token)).toMatchObject({ rows: [], newSuspects: 4 });
    expect(await queue()).toEqual(['1', '2', '3', '4'].map((seq) => ({ seq, claimed_by: null, takeovers: 2 })));
    expect((await claimAs(token, { suspectMax: 0 })).rows).toEqual([]);
    expect((await claimAs(token, { suspectMax: 2 })).rows).toMatchObject(
      ['1', '3'].map((seq) => ({ seq, takenOver: false, takeovers: 2 })),
    );
    // The second event of x stands behind the first.
    expect((await claimAs(await relay(), { suspectMax: 2 })).rows).toMatchObject([{ seq: '4' }]);
    expect((await claimAs(await relay())).rows).toEqual([]);
  });

  test('those with the fewest takeovers come first', async () => {
    for (const key of ['x', 'y', 'z']) await emit(key);
    await db.query('update postcommit.outbox_queue set takeovers = 5 - seq');
    const token = await relay();
    expect((await claimAs(token, { suspectMax: 2 })).rows.map(({ seq }) => seq)).toEqual(['2', '3']);
  });

  test('others are claimed beside a suspect, and do not pass it in its key', async () => {
    await emit('x', 2);
    await db.query('update postcommit.outbox_queue set takeovers = 2 where seq = 1');
    await emit('y', 2);
    const token = await relay();
    expect((await claimAs(token, { suspectMax: 0 })).rows.map(({ seq }) => seq)).toEqual(['3', '4']);
    expect((await claimAs(token)).rows.map(({ seq }) => seq)).toEqual(['1', '2']);
  });

  test('a suspect is counted up to the fourth relay that ended; then only its trials are', async () => {
    await emit('x');
    await db.query('update postcommit.outbox_queue set takeovers = 2');
    for (const takeovers of [2, 3, 4, 4]) expect(await claimAndEnd()).toEqual([{ seq: '1', takeovers }]);
    const token = await relay();
    expect((await claimAs(token)).rows).toMatchObject([{ seq: '1', takenOver: true, takeovers: 4 }]);
    expect(await beginTrial(db.pool, 'postcommit', '1', token)).toBe(true);
    await deregisterRelay(db.pool, 'postcommit', token);
    const next = await relay();
    expect((await claimAs(next)).rows).toMatchObject([{ seq: '1', takenOver: true, takeovers: 5 }]);
    expect(await beginTrial(db.pool, 'postcommit', '1', token)).toBe(false);
  });

  test.each([
    ['retry', { delayMs: 0, done: [], errors: [] }, 0],
    ['retry', { delayMs: 0, done: [], errors: [], isUntried: true }, 6],
    ['release', {}, 4],
  ] as const)('%s %j leaves it with as many as it should', async (transition, more, takeovers) => {
    await emit('x');
    await db.query('update postcommit.outbox_queue set takeovers = 6');
    const token = await relay();
    await claimAs(token);
    await fail(query, 'postcommit', token, [{ seq: '1', attempts: 0, transition, ...more } as Failure]);
    expect(await db.query('select takeovers from postcommit.outbox_queue')).toEqual([{ takeovers }]);
  });

  test('a claim of one event leaves suspects to the other claim', async () => {
    await emit('x');
    await db.query('update postcommit.outbox_queue set takeovers = 2');
    const next = { token: await relay(), exceptKeys: [], inlineBytesMax: 1_000, knownSeqs: undefined, targets: [] };
    const answer = await claimNext(query, 'postcommit', { ...next, lowWater: request.lowWater });
    expect(answer).toBe('other');
  });

  test('a suspect in backoff waits for its time', async () => {
    await emit('x');
    await db.query(`update postcommit.outbox_queue set takeovers = 3, available_at = now() + interval '1 hour'`);
    const token = await relay();
    expect((await claimAs(token)).rows).toEqual([]);
    await db.query(`update postcommit.outbox_queue set available_at = now() - interval '1 second'`);
    expect((await claimAs(token)).rows).toMatchObject([{ seq: '1' }]);
  });

  test.each([
    ['is in backoff', `available_at = now() + interval '1 hour'`],
    ['holds its key', `blocking = true, available_at = 'infinity'`],
    ['is in the hands of another relay', 'claimed_by = $1'],
  ])('a suspect that %s keeps no event from the quick claim', async (_name, state) => {
    await emit('x');
    const other = await relay();
    await db.query(`update postcommit.outbox_queue set takeovers = 2, ${state}`, state.includes('$1') ? [other] : []);
    await emit('y');
    const next = { token: await relay(), exceptKeys: [], inlineBytesMax: 1_000, knownSeqs: undefined, targets: [] };
    const answer = await claimNext(query, 'postcommit', { ...next, lowWater: request.lowWater });
    expect(answer).toMatchObject({ rows: [{ seq: '2' }] });
  });
});
