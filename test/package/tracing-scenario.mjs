// Emits one event, with a trace if the application has @opentelemetry/api. Prints the event's headers.
import pg from 'pg';
import { createOutbox, fromPg } from 'postcommit';

const api = await import('@opentelemetry/api').catch(() => undefined);
if (api !== undefined) {
  api.propagation.setGlobalPropagator({
    inject: (_context, carrier, setter) => setter.set(carrier, 'traceparent', '00-trace'),
    extract: (context) => context,
    fields: () => ['traceparent'],
  });
}
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const outbox = createOutbox({ db: fromPg(pool), notify: false });
const id = await outbox.transaction((_tx, emit) =>
  emit({ type: 'order.created', aggregate: ['order', '1'], payload: null }),
);
const { rows } = await pool.query('select headers from postcommit.outbox_events where id = $1', [id]);
console.log(JSON.stringify(rows[0].headers));
await pool.end();
