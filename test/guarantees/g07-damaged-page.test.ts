import { randomBytes } from 'node:crypto';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { startTestPostgres } from '../support/postgres-server.ts';
import { RelayScenario } from '../support/relay-scenario.ts';

test('a payload on a damaged page stops no other event (G7)', async () => {
  const server = await startTestPostgres();
  onTestFinished(() => server.stop());
  const scenario = await RelayScenario.create({ serverUrl: server.connectionString });
  onTestFinished(() => scenario.close());
  // Random bytes do not compress, so this payload is out of line, and small enough for a claim to read it.
  const [damaged] = await scenario.emit([
    { aggregateId: 'damaged', payload: { pad: randomBytes(5_000).toString('base64') } },
  ]);
  const others = await scenario.emit(Array.from({ length: 20 }, (_, n) => ({ aggregateId: `a${n}` })));
  const [{ path }] = await scenario.db.query(`select pg_relation_filepath(reltoastrelid::regclass) as path
    from pg_class where oid = 'postcommit.outbox_events'::regclass`);
  await scenario.db.query('checkpoint');
  const file = await open(join(server.dataDirectory, path), 'r+');
  await file.write(randomBytes(8_192), 0, 8_192, 0);
  await file.close();
  await server.restart('immediate'); // The server has the page in memory.

  await scenario.relay('one', { logger: false });
  await scenario.drained();
  expect(new Set(scenario.journal.read().map(({ id }) => id))).toEqual(new Set(others));
  const letters = await scenario.db.query(`select e.id, d.error from postcommit.outbox_dead_letters d
    join postcommit.outbox_events e using (seq)`);
  expect(letters).toEqual([{ id: damaged, error: expect.stringContaining('invalid page in block 0') }]);
}, 60_000);
