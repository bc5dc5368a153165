import { describe, expect, onTestFinished, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { setForDatabase } from '../support/database-settings.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { quietPool } from '../support/quiet-pool.ts';

describe.each(postgresVersions)('quote_all_identifiers = on, PostgreSQL %i', (version) => {
  test('the doctor finds every index, before and after the log is partitioned', async () => {
    const db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    onTestFinished(() => db.close());
    await setForDatabase(db, 'quote_all_identifiers', 'on');
    const pool = quietPool(db.url, { max: 1 });
    onTestFinished(() => pool.end());
    const { admin } = createOutbox({ db: fromPg(pool) });
    const setting = async () => (await pool.query('show quote_all_identifiers')).rows[0].quote_all_identifiers;

    expect(await setting()).toBe('on');
    expect((await admin.doctor({ only: ['indexes', 'triggers'] })).worst).toBe('ok');
    await admin.partitions.convert('day');
    expect((await admin.doctor({ only: ['indexes', 'triggers', 'partitions'] })).worst).toBe('ok');
    expect(await setting()).toBe('on');

    await db.query('drop index postcommit.outbox_queue_key_idx');
    expect((await admin.doctor({ only: ['indexes'] })).findings).toMatchObject([
      { what: 'the index btree (key, seq) WHERE (key IS NOT NULL) on outbox_queue is missing' },
    ]);
  });
});
