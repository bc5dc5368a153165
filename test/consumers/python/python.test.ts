import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { createOutbox, createRelay, fromPg } from '../../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../../support/database.ts';
import { ScriptedPublisher } from '../../support/scripted-publisher.ts';
import { until } from '../../support/wait.ts';
import { silent } from '../consumer-suite.ts';

const script = fileURLToPath(new URL('consumer.py', import.meta.url));
const schema = fileURLToPath(new URL('../../../docs/wire-format/envelope.schema.json', import.meta.url));

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
  await db.query('create table booked (event_id uuid, total integer)');
});
afterAll(() => db.close());

/** The result for each body. */
async function consume(bodies: readonly string[]): Promise<string[]> {
  const output = await new Promise<string>((resolve, reject) => {
    const child = execFile('python3', [script, schema, db.url], (error, stdout) =>
      error ? reject(error) : resolve(stdout),
    );
    child.stdin?.end(bodies.map((body) => `${body}\n`).join(''));
  });
  return output.trim().split('\n');
}

test('a consumer in Python reads the envelope by its schema and deduplicates with the documented SQL', async () => {
  const publisher = new ScriptedPublisher();
  const relay = createRelay({
    connectionString: db.url,
    pollIntervalMs: 20,
    logger: silent,
    destinations: { broker: { publisher } },
    route: () => ({ to: 'broker', topic: 'orders' }),
  });
  onTestFinished(() => relay.stop());
  await relay.start();
  const ids = await createOutbox({ db: fromPg(db.pool) }).transaction(async (_tx, emit) =>
    emit([7, 8].map((total) => ({ type: 'order.created', aggregate: ['order', 'ü'] as const, payload: { total } }))),
  );
  await until(() => publisher.received.length === 2, { what: 'both are published' });
  const [first = '', second = ''] = publisher.received.map(({ body }) => body as string);

  const future = JSON.stringify({ ...JSON.parse(first), envelopeVersion: 2 });
  const notUuid = JSON.stringify({ ...JSON.parse(first), eventId: 'order-7' });
  const incomplete = JSON.stringify({ ...JSON.parse(first), aggregate: { type: 'order' } });
  const results = await consume([first, second, first, '{"not": json', future, notUuid, incomplete]);
  expect(results).toEqual(['processed', 'processed', 'duplicate', 'invalid', 'invalid', 'invalid', 'invalid']);
  // Another process, after a crash say.
  expect(await consume([second])).toEqual(['duplicate']);
  expect(await db.query('select event_id, total from booked order by total')).toEqual([
    { event_id: ids[0], total: 7 },
    { event_id: ids[1], total: 8 },
  ]);
});
