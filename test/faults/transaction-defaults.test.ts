import type pg from 'pg';
import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg, type Relay } from '../../src/index.ts';
import { setForDatabase } from '../support/database-settings.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { startTransactionPooler } from '../support/transaction-pooler.ts';
import { until } from '../support/wait.ts';

/** Notes the isolation of every transaction that changes one of the relay's tables. */
async function watchIsolation(scenario: RelayScenario): Promise<() => Promise<Record<string, string[]>>> {
  const tables = ['outbox_queue', 'outbox_relays', 'outbox_leadership', 'outbox_maintenance'];
  await scenario.db.query(`
    create table public.seen (place text, isolation text, unique (place, isolation));
    create function public.see() returns trigger language plpgsql as $f$
    begin
      insert into public.seen values (tg_table_name, current_setting('transaction_isolation')) on conflict do nothing;
      return null;
    end $f$;
    ${tables.map((table) => `create trigger see after update or delete on postcommit.${table} for each statement execute function public.see();`).join('')}
    create trigger see after insert on postcommit.outbox_deliveries for each statement execute function public.see()`);
  return async () => {
    const rows = await scenario.db.query(
      `select place, array_agg(isolation) as levels from public.seen group by place`,
    );
    return Object.fromEntries(rows.map(({ place, levels }) => [place, levels]));
  };
}

/** Maintenance of a relay that has run each of its tasks. */
async function maintained(relay: Relay): Promise<(string | undefined)[]> {
  await until(() => relay.stats().maintenance.length === 6, { what: 'all tasks have run', timeoutMs: 20_000 });
  return relay.stats().maintenance.map(({ error }) => error);
}

describe.each(['serializable', 'repeatable read'])('default_transaction_isolation = %s', (isolation) => {
  test.each([
    ['directly', false],
    ['behind a transaction pooler', true],
  ])('relays work under read committed, %s', (_name, pooled) =>
    withScenario(async (scenario) => {
      await setForDatabase(scenario.db, 'default_transaction_isolation', isolation);
      const levels = await watchIsolation(scenario);
      const pooler = pooled ? await startTransactionPooler(scenario.db.url, 3) : undefined;
      const connectionString = pooler?.url(scenario.db.url) ?? scenario.db.url;
      const pool = quietPool(connectionString);
      try {
        const { admin } = createOutbox({ db: fromPg(pool) });
        await admin.partitions.convert('day');
        const options = {
          connectionString,
          listen: !pooled,
          maintenance: { intervalMs: 100 },
          retry: { delaysMs: [1] },
        };
        const relay = await scenario.relay('one', { ...options, leaseMs: 1_500 });
        await scenario.emit(
          Array.from({ length: 30 }, (_, n) => ({ aggregateId: `a${n % 5}`, script: { failTimes: n === 7 ? 1 : 0 } })),
        );
        await scenario.drained();
        expect(await maintained(relay)).toEqual(Array(6).fill(undefined));
        await relay.stop();
        const seen = await levels();
        expect(Object.keys(seen)).toEqual(
          expect.arrayContaining(['outbox_queue', 'outbox_deliveries', 'outbox_relays', 'outbox_leadership']),
        );
        for (const place of Object.keys(seen))
          expect({ place, levels: seen[place] }).toEqual({ place, levels: ['read committed'] });

        // The session that others share behind the pooler has its default as before.
        for (let n = 0; n < 6; n++) {
          const { rows } = await pool.query('show default_transaction_isolation');
          expect(rows[0]).toEqual({ default_transaction_isolation: isolation });
        }
      } finally {
        await pool.end();
        await pooler?.close();
      }
    })(),
  );

  test(
    'operators work through a pool of their own, and the doctor reports it',
    withScenario(async (scenario) => {
      await setForDatabase(scenario.db, 'default_transaction_isolation', isolation);
      const pool = quietPool(scenario.db.url, { max: 1 });
      try {
        const { admin } = createOutbox({ db: fromPg(pool) });
        expect(await admin.prune({ olderThanMs: 0 })).not.toHaveProperty('interrupted');
        await admin.partitions.convert('day');
        expect(await admin.partitions.rotate()).toMatchObject({ unit: 'day' });
        expect((await admin.doctor({ only: ['settings'] })).findings).toContainEqual(
          expect.objectContaining({ severity: 'note', what: `default_transaction_isolation is ${isolation}` }),
        );
      } finally {
        await pool.end();
      }
    }),
  );
});

test(
  'serializable business transactions are not aborted by relays',
  withScenario(async (scenario) => {
    await setForDatabase(scenario.db, 'default_transaction_isolation', 'serializable');
    await scenario.db.query('create table public.orders (id serial primary key, total integer)');
    for (const name of ['one', 'two']) await scenario.relay(name, { pollIntervalMs: 20, leaseMs: 1_500 });
    const pool = quietPool(scenario.db.url, { max: 4 });
    const outbox = createOutbox<pg.PoolClient>({ db: fromPg(pool) });
    const failures: unknown[] = [];
    // One writer alone: whatever fails, fails because of the relays.
    for (let n = 0; n < 100; n++) {
      await outbox
        .transaction(async (tx, emit) => {
          await tx.query('insert into public.orders (total) values ($1)', [n]);
          await emit({ type: 'scripted', aggregate: ['order', `${n}`], payload: null });
          await tx.query('select count(*) from postcommit.outbox_queue');
        })
        .catch((error) => failures.push((error as { code?: string }).code));
    }
    await scenario.drained();
    await pool.end();
    expect(failures).toEqual([]);
  }),
);

test(
  'default_transaction_read_only = on: relays deliver and maintain',
  withScenario(async (scenario) => {
    await scenario.emit([{ aggregateId: 'a' }, { aggregateId: 'b' }]);
    await setForDatabase(scenario.db, 'default_transaction_read_only', 'on');
    const relay = await scenario.relay('one', { maintenance: { intervalMs: 100 }, leaseMs: 1_500 });
    await scenario.drained();
    expect(await maintained(relay)).toEqual(Array(6).fill(undefined));
  }),
);
