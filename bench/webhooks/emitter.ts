// Emits events for customers at a steady rate, in a process of its own. Answers by IPC when each was committed.
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { monotonicMs } from '../clock.ts';
import { seededRandom } from '../shuffled.ts';

export interface EmitterTask {
  connectionString: string;
  port: number;
  customers: number;
  /** The first so many customers have a backlog of `backlog` events each when the clock starts. */
  troubled: number;
  backlog: number;
  perSecond: number;
  seconds: number;
  /** Events before that, which do not count. */
  warmUp: number;
  payloadBytes: number;
  seed: number;
}

export interface EmitterReport {
  /** Customer and time of the commit, by event. Those of the warm-up have no time. */
  events: [customer: number, committedAtMs: number | null][];
}

const task = JSON.parse(process.argv[2] ?? '') as EmitterTask;
const { createOutbox, fromPg } = await import(new URL('../../dist/index.js', import.meta.url).href);
const pool = new pg.Pool({ connectionString: task.connectionString });
const outbox = createOutbox({ db: fromPg(pool) });
const random = seededRandom(task.seed);
const events: EmitterReport['events'] = [];

function eventFor(customer: number) {
  const url = `http://customer-${customer}.test:${task.port}/customers/${customer}`;
  const payload = { event: events.length, url, text: 'x'.repeat(Math.max(0, task.payloadBytes - 100)) };
  return { type: 'order.created', aggregate: ['order', events.length], payload };
}

async function emit(customer: number): Promise<void> {
  const event = eventFor(customer);
  const entry: EmitterReport['events'][number] = [customer, null];
  events.push(entry);
  await outbox.transaction([], event);
  entry[1] = monotonicMs();
}

for (let n = 0; n < task.warmUp; n++) {
  await emit(task.troubled + (n % (task.customers - task.troubled)));
  (events.at(-1) as EmitterReport['events'][number])[1] = null;
}
for (let n = 0; n < task.backlog; n++) {
  for (let customer = 0; customer < task.troubled; customer++) await emit(customer);
}
const startedAtMs = monotonicMs();
for (let n = 0; n < task.seconds * task.perSecond; n++) {
  const dueInMs = startedAtMs + ((n + random()) * 1_000) / task.perSecond - monotonicMs();
  if (dueInMs > 0) await sleep(dueInMs);
  await emit(Math.floor(random() * task.customers));
}
await pool.end();
const report: EmitterReport = { events };
process.send?.(report, () => process.exit(0));
