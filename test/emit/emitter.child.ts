// Leaves a transaction with an event open, and waits to be killed. Arguments: connection string, order id.
import pg from 'pg';
import { fromPg } from '../../src/adapters/pg.ts';
import { createOutbox } from '../../src/emit/outbox.ts';

const [connectionString, id = ''] = process.argv.slice(2);
const pool = new pg.Pool({ connectionString, application_name: 'emitter' });
const outbox = createOutbox({ db: fromPg(pool) });
const client = await pool.connect();
await client.query('begin');
await client.query('insert into orders (id) values ($1)', [id]);
const eventId = await outbox.emit(client, { type: 'order.created', aggregate: ['order', id], payload: { id } });
console.log(JSON.stringify({ eventId }));
setInterval(() => {}, 1_000);
