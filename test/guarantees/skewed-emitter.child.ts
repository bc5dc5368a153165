// Emits on a host whose clock is wrong (CLOCK_SKEW_MS), one transaction per event. Arguments: connection string, how
// many events without a delay, delay of one more event in milliseconds. Ends by itself.
import { trueNow } from '../support/skewed-clock.ts';

const { default: pg } = await import('pg');
const { createOutbox, fromPg } = await import('../../src/index.ts');

const [connectionString, count, delayMs] = process.argv.slice(2);
const pool = new pg.Pool({ connectionString });
const outbox = createOutbox({ db: fromPg(pool) });
const event = { type: 'scripted', payload: null };
await outbox.transaction((_tx, emit) => emit({ ...event, aggregate: ['thing', 'delayed'], delayMs: Number(delayMs) }));
for (let n = 0; n < Number(count); n++) {
  await outbox.transaction((_tx, emit) => emit({ ...event, aggregate: ['thing', 'shared'] }));
}
await pool.end();
console.log(JSON.stringify({ skewMs: Date.now() - trueNow() }));
