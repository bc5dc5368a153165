// The HTTP side, as a process of its own: DATABASE_URL=… PORT=3000 npx tsx examples/reports/server.ts
import pg from 'pg';
import { startHttpApi } from './http-api.ts';
import { createReportOutbox } from './report-outbox.ts';
import { ReportService } from './report-service.ts';

const connectionString = process.env.DATABASE_URL;
if (!connectionString) throw new Error('Set DATABASE_URL to the database of the report service.');
const pool = new pg.Pool({ connectionString });
pool.on('error', () => {}); // An idle connection broke. Without this line that would end the process.

const api = await startHttpApi(new ReportService(pool, createReportOutbox(pool)), Number(process.env.PORT ?? 0));
console.log(`server   POST ${api.url}/reports`);
for (const signal of ['SIGTERM', 'SIGINT']) {
  process.once(signal, async () => {
    await api.stop();
    await pool.end();
  });
}
