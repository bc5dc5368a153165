import { expect, onTestFinished, test } from 'vitest';
import { createInbox, createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { quietPool } from '../support/quiet-pool.ts';

test('a pool has one listener, however many outboxes and inboxes use it, and every one of them emits', async () => {
  const database = await createTestDatabase();
  const pool = quietPool(database.url, { max: 2 });
  const warnings: Error[] = [];
  const onWarning = (warning: Error) => warnings.push(warning);
  process.on('warning', onWarning);
  onTestFinished(async () => {
    process.off('warning', onWarning);
    await pool.end();
    await database.close();
  });
  const before = pool.listenerCount('release');
  const outboxes = Array.from({ length: 20 }, () => createOutbox({ db: fromPg(pool) }));
  for (let at = 0; at < 20; at++) createInbox({ db: fromPg(pool) });
  expect(pool.listenerCount('release') - before).toBe(1);
  // Warnings are emitted in a later turn than what they are about.
  await new Promise(setImmediate);
  expect(warnings).toEqual([]);

  // All of them in one transaction of the caller.
  const client = await pool.connect();
  await client.query('begin');
  for (const [n, outbox] of outboxes.entries()) {
    await outbox.emit(client, { type: 'order.created', aggregate: ['order', n], payload: n });
  }
  await client.query('commit');
  client.release();
  const rows = await database.query('select aggregate_id from postcommit.outbox_events order by seq');
  expect(rows.map((row) => Number(row.aggregate_id))).toEqual(outboxes.map((_, n) => n));
});
