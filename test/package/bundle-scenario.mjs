// A server as frameworks bundle it: a hook that runs at start-up, and a request handler. Prints what happened as JSON.
import { once } from 'node:events';
import { createServer } from 'node:http';
import pg from 'pg';
import { createOutbox, createRelay, fromPg, migrate, migrationSql } from 'postcommit';
import { rabbitmq } from 'postcommit/rabbitmq';
import { webhook } from 'postcommit/webhook';

const connectionString = process.env.DATABASE_URL;

async function listen(handle) {
  const server = createServer((request, response) => {
    handle(request).then(
      (body) => response.end(body),
      (error) => response.writeHead(500).end(String(error)),
    );
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, url: `http://127.0.0.1:${server.address().port}/` };
}

async function readBody(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

async function main() {
  const { applied } = await migrate({ connectionString });
  const again = await migrate({ connectionString });

  const pool = new pg.Pool({ connectionString });
  const outbox = createOutbox({ db: fromPg(pool) });
  await pool.query('create table orders (id text primary key)');
  const orders = await listen(async (request) => {
    const id = await readBody(request);
    const event = { type: 'order.created', aggregate: ['order', id], payload: { id } };
    await outbox.transaction(async (tx, emit) => {
      await tx.query('insert into orders (id) values ($1)', [id]);
      await emit(event);
    });
    const client = await pool.connect();
    await client.query('begin');
    await outbox.emit(client, { ...event, type: 'order.confirmed' });
    await client.query('commit');
    client.release();
    return 'created';
  });

  const sent = [];
  const handled = [];
  let finish;
  const allDelivered = new Promise((resolve) => {
    finish = resolve;
  });
  const check = () => sent.length === 4 && handled.length === 2 && finish();
  const receiver = await listen(async (request) => {
    const { eventType, data } = JSON.parse(await readBody(request));
    sent.push(`${eventType} ${data.id}`);
    check();
    return '';
  });
  const relay = createRelay({
    connectionString,
    destinations: { hook: webhook({ url: receiver.url, secret: null }) },
    route: () => ({ to: 'hook' }),
    handlers: {
      'order.created': {
        mail: async (event) => {
          handled.push(event.payload.id);
          check();
        },
      },
    },
  });
  await relay.start();
  for (const id of ['1', '2']) await fetch(orders.url, { method: 'POST', body: id });
  await allDelivered;
  await relay.stop();

  const {
    rows: [{ version }],
  } = await pool.query('select version from postcommit.outbox_relays');
  const { findings } = await outbox.admin.doctor({ only: ['migrations'] });
  const refused = await rabbitmq({ url: 'amqp://127.0.0.1:1' })
    .connect(new AbortController().signal)
    .catch(({ code, cause }) => code ?? cause?.code);
  await pool.end();
  for (const { server } of [orders, receiver]) server.close();
  const report = {
    applied,
    appliedAgain: again.applied,
    sqlLength: migrationSql().length,
    sent: sent.sort(),
    handled: handled.sort(),
    version,
    doctor: findings.map(({ severity }) => severity),
    refused,
  };
  console.log(JSON.stringify(report));
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
