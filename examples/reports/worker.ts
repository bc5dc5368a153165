// A worker, as a process of its own: DATABASE_URL=… WORKER_NAME=worker-1 npx tsx examples/reports/worker.ts
// Run as many as you like. It stops on SIGTERM and SIGINT, and releases what it has not finished.
import { hostname } from 'node:os';
import pg from 'pg';
import { createRelay, type DeliveredEvent, type HandlerContext } from 'postcommit';
import { ReportGenerator, stepTimeoutMs } from './generate-report.ts';
import { createReportOutbox } from './report-outbox.ts';

const connectionString = process.env.DATABASE_URL;
if (!connectionString) throw new Error('Set DATABASE_URL to the database of the report service.');
const name = process.env.WORKER_NAME ?? `${hostname()}:${process.pid}`;
/** Only the story shortens it: a frozen worker is replaced after this time. */
const leaseMs = Number(process.env.WORKER_LEASE_MS ?? 30_000);

const pool = new pg.Pool({ connectionString });
pool.on('error', () => {}); // An idle connection broke. Without this line that would end the process.
const generator = new ReportGenerator({ pool, outbox: createReportOutbox(pool), worker: name });

/** Stands in for a mail provider: give it the key, and it sends a mail with the same key once. */
async function sendMail({ aggregate }: DeliveredEvent, ctx: HandlerContext): Promise<void> {
  await pool.query(
    `insert into sent_mails (idempotency_key, report_id, subject) values ($1, $2, 'Your report is ready')
     on conflict (idempotency_key) do nothing`,
    [ctx.idempotencyKey, aggregate.id],
  );
}

async function countRequest({ payload }: DeliveredEvent<{ reportId: string; days: number }>, ctx: HandlerContext) {
  await pool.query('insert into counted_requests values ($1, $2, $3) on conflict (idempotency_key) do nothing', [
    ctx.idempotencyKey,
    payload.reportId,
    payload.days,
  ]);
}

const relay = createRelay({
  connectionString,
  name,
  leaseMs,
  // How much of each at a time. Two long reports never keep a mail waiting for a slot.
  queues: { reports: 2, mail: 10, default: 20 },
  handlers: {
    'report.requested': {
      generate: { handle: generator.handle, timeoutMs: stepTimeoutMs, retry: { attemptsMax: 5 } },
    },
    'report.ready': { mail: { handle: sendMail, timeoutMs: 5_000, rateMax: 100 } },
    'request.counted': { count: countRequest },
  },
});

relay.on('relayLost', (lost) => console.log(`${name} takes over from ${lost.name}`));
relay.on('leaseLost', () => console.log(`${name} was taken for dead, and continues with a new lease`));

let stopping = false;
async function stop(): Promise<void> {
  if (stopping) return;
  stopping = true;
  await relay.stop();
  await pool.end();
  if (process.connected) process.disconnect();
}
// `disconnect`: the process that started it has ended.
for (const signal of ['SIGTERM', 'SIGINT', 'disconnect']) process.once(signal, () => void stop());
await relay.start();
