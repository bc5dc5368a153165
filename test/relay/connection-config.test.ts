import { randomBytes } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { createOutbox, createRelay, fromPg } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { orderCreated } from '../support/orders.ts';
import { until } from '../support/wait.ts';

test('a relay reconnects with the password that its function returns then', async () => {
  const db = await createTestDatabase();
  const role = `relay_${randomBytes(6).toString('hex')}`;
  await db.query(`create role ${role} login superuser password 'first-secret'`);
  onTestFinished(async () => {
    await db.query(`drop role ${role}`);
    await db.close();
  });
  const { hostname, port, pathname } = new URL(db.url);
  const log: string[] = [];
  const line = (fields: object, message: string) => void log.push(JSON.stringify({ ...fields, message }));
  const delivered: string[] = [];
  let password = 'first-secret';
  const relay = createRelay({
    connection: {
      host: hostname,
      port: Number(port),
      database: pathname.slice(1),
      user: role,
      password: async () => password,
    },
    handlers: { 'order.created': { note: (event) => void delivered.push(event.id) } },
    logger: { debug: line, info: line, warn: line, error: line },
  });
  onTestFinished(() => relay.stop());
  await relay.start();
  const outbox = createOutbox({ db: fromPg(db.pool) });
  const emit = () => outbox.transaction((_tx, emit) => emit(orderCreated('1')));
  const first = await emit();
  await until(() => delivered.includes(first), { what: 'the first event was delivered' });

  await db.query(`alter role ${role} password 'second-secret'`);
  password = 'second-secret';
  await db.query('select pg_terminate_backend(pid) from pg_stat_activity where usename = $1', [role]);
  const second = await emit();
  await until(() => delivered.includes(second), { what: 'the second event was delivered' });
  expect(log.join('\n')).not.toContain('-secret');
});
