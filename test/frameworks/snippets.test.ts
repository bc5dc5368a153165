import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { choosePort } from '../../services/ports.ts';
import { type Child, endChild, startChild } from '../support/child.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { until, within } from '../support/wait.ts';
import { type Snippets, writeSnippets } from './snippets.ts';

const timeoutMs = 30_000;

describe('the snippets of docs/frameworks', () => {
  let snippets: Snippets;
  let db: TestDatabase;
  const children: Child[] = [];

  beforeAll(async () => {
    snippets = await writeSnippets();
  });
  afterAll(() => snippets.remove());
  beforeEach(async () => {
    db = await createTestDatabase();
    await db.query('create table orders (id text primary key, total integer not null)');
  });
  afterEach(async () => {
    for (const child of children.splice(0)) await endChild(child);
    await db.close();
  });

  function start(page: string, file: string, env: Record<string, string> = {}): Child {
    const child = startChild(snippets.path(page, file), [], { DATABASE_URL: db.url, ...env });
    children.push(child);
    return child;
  }

  /** Starts a server, places an order, and the same again, which must fail. */
  async function placeOrders(page: string): Promise<Child> {
    const port = await choosePort();
    const server = start(page, 'server.ts', { PORT: String(port) });
    const place = () =>
      fetch(`http://127.0.0.1:${port}/orders`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ id: '1', total: 99 }),
      });
    const first = await until(place, { what: `${page} answers: ${server.stderr()}`, timeoutMs });
    expect({ status: first.status, body: await first.json() }).toEqual({ status: 201, body: { id: '1' } });
    expect((await place()).status).toBe(500);
    return server;
  }

  const orders = () => db.query('select id, total from orders');
  const statuses = async () =>
    (await db.query('select event_type, status from postcommit.outbox_status')).map(
      ({ event_type, status }) => `${event_type} ${status}`,
    );
  /** Waits until it has printed this, as text or in a line of JSON. */
  const printed = (child: Child, text: string) => {
    const output = () => `${child.stderr()}${JSON.stringify(child.messages)}`;
    return until(() => output().includes(text), { what: `it prints ${text}`, timeoutMs });
  };

  /** SIGTERM ends it cleanly: by itself, with code 0, and signed off. */
  async function expectCleanStop(child: Child): Promise<void> {
    child.kill('SIGTERM');
    const { code } = await within(child.exited, { what: 'it has ended', timeoutMs });
    expect({ code, stderr: code === 0 ? '' : child.stderr() }).toEqual({ code: 0, stderr: '' });
    expect(await db.query('select from postcommit.outbox_relays where ended_at is null')).toEqual([]);
  }

  it('compile with the types of the frameworks', async () => {
    expect(await snippets.compile()).toBe('');
  });

  it('are all run by a test of this file', () => {
    expect(Object.fromEntries(snippets.files)).toEqual({
      express: ['outbox.ts', 'server.ts', 'relay.ts'],
      fastify: ['server.ts'],
      hono: ['server.ts'],
      nextjs: [
        'next.config.ts',
        'lib/outbox.ts',
        'app/api/orders/route.ts',
        'lib/relay.ts',
        'instrumentation.ts',
        'app/api/relay/route.ts',
      ],
      serverless: ['place-order.ts', 'deliver.ts'],
    });
  });

  it.each(['fastify', 'hono'])(
    '%s: a route emits, the relay of the same process delivers, SIGTERM stops both',
    async (page) => {
      const server = await placeOrders(page);
      await printed(server, 'receipt for order 1');
      await until(async () => (await statuses()).join() === 'order.created SENT', {
        what: 'it is delivered',
        timeoutMs,
      });
      expect(await orders()).toEqual([{ id: '1', total: 99 }]);
      await expectCleanStop(server);
    },
  );

  it('express: a route emits, and a relay in a process of its own delivers', async () => {
    const server = await placeOrders('express');
    expect(await orders()).toEqual([{ id: '1', total: 99 }]);
    expect(await statuses()).toEqual(['order.created PENDING']);
    await expectCleanStop(server);
    const relay = start('express', 'relay.ts');
    await printed(relay, 'receipt for order 1');
    await until(async () => (await statuses()).join() === 'order.created SENT', { what: 'it is delivered', timeoutMs });
    await expectCleanStop(relay);
  });

  it('nextjs: route handlers emit and deliver, and instrumentation.ts starts a relay', async () => {
    await snippets.add('nextjs', 'drive.mts', driveNextjs);
    const child = start('nextjs', 'drive.mts', { NEXT_RUNTIME: 'nodejs', CRON_SECRET: 'secret' });
    const { event: _, ...answers } = await child.next(({ event }) => event === 'answers', timeoutMs);
    const delivered = { delivered: 1, failed: 0, deadLettered: 0, complete: true };
    expect(answers).toEqual({
      external: ['postcommit', 'pg'],
      placed: [201, { id: '1' }],
      refused: 401,
      ran: [200, delivered],
    });
    await printed(child, 'receipt for order 1');
    await child.next(({ event }) => event === 'registered', timeoutMs);
    await printed(child, 'receipt for order 2');
    await expectCleanStop(child);
  });

  it('serverless: one function emits, and a scheduled one delivers', async () => {
    await snippets.add('serverless', 'drive.mts', driveServerless);
    const child = start('serverless', 'drive.mts');
    const { event: _, ...answers } = await child.next(({ event }) => event === 'answers', timeoutMs);
    expect(answers).toEqual({
      placed: { statusCode: 201, body: '{"id":"1"}' },
      delivered: { delivered: 1, complete: true },
      deliveredAgain: { delivered: 0, complete: true },
    });
    await printed(child, 'receipt for order 1');
    expect(await statuses()).toEqual(['order.created SENT']);
    // An instance is frozen between two calls: nothing may be left behind that needs it.
    expect(await db.query('select from postcommit.outbox_relays where ended_at is null')).toEqual([]);
  });
});

const driveNextjs = `
  import { NextRequest } from 'next/server';
  import config from './next.config';
  import { register } from './instrumentation';
  import { POST } from './app/api/orders/route';
  import { GET } from './app/api/relay/route';

  const request = (path, init) => new NextRequest('http://localhost' + path, init);
  const place = (id) => POST(request('/api/orders', { method: 'POST', body: JSON.stringify({ id, total: 99 }) }));
  const tell = (message) => console.log(JSON.stringify(message));
  const placed = await place('1');
  const refused = await GET(request('/api/relay'));
  const ran = await GET(request('/api/relay', { headers: { authorization: 'Bearer secret' } }));
  tell({
    event: 'answers',
    external: config.serverExternalPackages,
    placed: [placed.status, await placed.json()],
    refused: refused.status,
    ran: [ran.status, await ran.json()],
  });
  await register();
  tell({ event: 'registered' });
  await place('2');
`;

const driveServerless = `
  import { handler as placeOrder } from './place-order';
  import { handler as deliver } from './deliver';

  const context = { getRemainingTimeInMillis: () => 30_000 };
  const placed = await placeOrder({ body: JSON.stringify({ id: '1', total: 99 }) });
  const delivered = await deliver({}, context);
  const deliveredAgain = await deliver({}, context);
  console.log(JSON.stringify({ event: 'answers', placed, delivered, deliveredAgain }));
  process.exit(0);
`;
