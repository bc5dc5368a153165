// Reports: a request saves a task in its transaction and is answered with 202, and workers generate the reports. README.md says
// how to run it. With --serve it waits for requests of yours instead of telling its story.
import { once } from 'node:events';
import pg from 'pg';
import { migrate } from 'postcommit';
import { startServers } from '../support/servers.ts';
import { type HttpApi, startHttpApi } from './http-api.ts';
import { createReportOutbox } from './report-outbox.ts';
import { ReportService } from './report-service.ts';
import { leaseMs, tellStory } from './story.ts';
import { createReportTables } from './tables.ts';
import { WorkerProcesses } from './worker-processes.ts';

const servers = await startServers();
const pool = new pg.Pool({ connectionString: servers.databaseUrl });
pool.on('error', () => {}); // An idle connection broke. Without this line that would end the process.
const outbox = createReportOutbox(pool);
const workers = new WorkerProcesses(servers.databaseUrl);
let api: HttpApi | undefined;
try {
  await migrate({ connectionString: servers.databaseUrl });
  await createReportTables(pool);
  api = await startHttpApi(new ReportService(pool, outbox), Number(process.env.PORT ?? 0));
  for (const name of ['worker-1', 'worker-2']) workers.start(name, leaseMs);
  if (process.argv.includes('--serve')) {
    console.log(`server   curl -i ${api.url}/reports -d '{"from": "2025-01-01", "to": "2025-12-31"}'`);
    console.log('server   Ctrl-C ends it');
    await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
  } else {
    process.exitCode = (await tellStory({ url: api.url, pool, outbox, workers })) ? 0 : 1;
  }
} finally {
  await workers.stop();
  await api?.stop();
  await pool.end();
  await servers.close();
}
