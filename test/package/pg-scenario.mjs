// What a user does with a pg client, run inside a project that has the packed postcommit and one version of pg.
// PG_PACKAGE names the copy of pg that the application uses; postcommit itself imports `pg`.
import assert from 'node:assert/strict';
import { createOutbox, createRelay, fromPg, migrate } from 'postcommit';

const { default: pg } = await import(process.env.PG_PACKAGE ?? 'pg');
const connectionString = process.env.DATABASE_URL;
await migrate({ connectionString });

const pool = new pg.Pool({ connectionString });
const outbox = createOutbox({ db: fromPg(pool) });
const written = async () => {
  const { rows } = await pool.query(
    `select (select count(*)::integer from orders) as orders,
            (select count(*)::integer from postcommit.outbox_events) as events`,
  );
  return rows[0];
};
const event = (aggregate, payload) => ({ type: 'order.changed', aggregate: ['order', aggregate], payload });
const insert = 'insert into orders (id) values ($1)';
await pool.query('create table orders (id text primary key, at timestamptz, tags text[], data jsonb, raw bytea)');

// emit(tx): with COMMIT, with ROLLBACK, and without a transaction.
const client = await pool.connect();
await client.query('begin');
await client.query(insert, ['1']);
await outbox.emit(client, event('1', 1));
await client.query('commit');
assert.deepEqual(await written(), { orders: 1, events: 1 });
await client.query('begin');
await client.query(insert, ['2']);
await outbox.emit(client, [event('2', 1), event('3', 1)]);
await client.query('rollback');
await assert.rejects(outbox.emit(client, event('1', 0)), { code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
assert.deepEqual(await written(), { orders: 1, events: 1 });
client.release();

// outbox.transaction, both forms.
for (const [round, options] of [{}, { pipeline: false }].entries()) {
  await outbox.transaction(async (tx, emit) => {
    await tx.query(insert, [`work-${round}`]);
    await emit(event('1', 2 + round * 3));
    await emit(event('1', 3 + round * 3));
  }, options);
  const at = new Date('2026-01-02T03:04:05.678Z');
  await outbox.transaction(
    [
      {
        text: 'insert into orders values ($1, $2, $3, $4, $5)',
        values: [`known-${round}`, at, ['a', 'b "c"'], { a: [1] }, Buffer.from([0, 255])],
      },
    ],
    event('1', 4 + round * 3),
    options,
  );
  const { rows } = await pool.query('select at, tags, data, raw from orders where id = $1', [`known-${round}`]);
  assert.deepEqual(rows, [{ at, tags: ['a', 'b "c"'], data: { a: [1] }, raw: Buffer.from([0, 255]) }]);
  const failing = outbox.transaction(async (tx, emit) => {
    await tx.query(insert, ['no']);
    await emit(event('1', 0));
    throw new Error('out of stock');
  }, options);
  await assert.rejects(failing, /out of stock/);
  await assert.rejects(outbox.transaction([{ text: insert, values: ['1'] }], event('1', 0), options), {
    code: '23505',
  });
  const swallowed = outbox.transaction(async (tx, emit) => {
    await emit(event('1', 0));
    await tx.query('select 1 / 0').catch(() => {});
  }, options);
  await assert.rejects(swallowed, { code: 'POSTCOMMIT_E_TRANSACTION_ABORTED' });
}
assert.deepEqual(await written(), { orders: 5, events: 7 });

// A relay: what is there, and what comes while it runs.
const delivered = [];
let wake = () => {};
const relay = createRelay({
  connectionString,
  handlers: {
    'order.changed': {
      note: async ({ aggregate, payload }) => {
        delivered.push([aggregate.id, payload]);
        wake();
      },
    },
  },
});
const until = async (count) => {
  while (delivered.length < count) {
    await new Promise((resolve) => {
      wake = resolve;
    });
  }
};
await relay.start();
await until(7);
await Promise.all(
  Array.from({ length: 40 }, (_, i) => outbox.transaction((_tx, emit) => emit(event(`many-${i % 8}`, i)))),
);
await outbox.transaction([], event('1', 8));
// Large payloads are loaded one by one when their turn comes, several at once on one connection of the relay.
await outbox.transaction(
  [],
  Array.from({ length: 12 }, (_, i) => event(`large-${i}`, 'x'.repeat(20_000))),
);
await until(60);
await relay.stop();
await pool.end();
assert.deepEqual(
  delivered.filter(([id]) => id === '1').map(([, payload]) => payload),
  [1, 2, 3, 4, 5, 6, 7, 8],
);
console.log(`delivered ${delivered.length}`);
