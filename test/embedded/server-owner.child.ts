// A process that owns an embedded server, to be killed by postgres-server.test.ts.
import pg from 'pg';
import { startEmbeddedPostgres } from '../../src/embedded/postgres-server.ts';

const [mode] = process.argv.slice(2);
const server = await startEmbeddedPostgres();
const send = (message: object) => process.stdout.write(`${JSON.stringify(message)}\n`);

if (mode === 'return') {
  process.exitCode = 7;
} else if (mode === 'handle-sigterm') {
  const alive = setInterval(() => {}, 1_000);
  process.once('SIGTERM', async () => {
    const client = new pg.Client({ connectionString: server.connectionString });
    await client.connect();
    const { rows } = await client.query('select 1 as answer');
    await client.end();
    send(rows[0]);
    await server.stop();
    process.exitCode = 7;
    clearInterval(alive);
  });
} else {
  setInterval(() => {}, 1_000);
}
send({ pid: server.pid, dataDirectory: server.dataDirectory });
