import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { serve } from '@hono/node-server';
import express from 'express';
import Fastify from 'fastify';
import { Hono } from 'hono';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createDashboard, type Dashboard, nodeListener } from '../../src/dashboard/index.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

let db: TestDatabase;
let dashboard: Dashboard;
const closes: (() => unknown)[] = [];

beforeAll(async () => {
  db = await createTestDatabase();
  const outbox = createOutbox({ db: fromPg(db.pool) });
  dashboard = createDashboard({ outboxes: { shop: outbox.admin }, open: true, basePath: '/postcommit' });
});
afterAll(async () => {
  dashboard.close();
  for (const close of closes) await close();
  await db.close();
});

function urlOf(server: Server): string {
  closes.push(() => server.closeAllConnections());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/postcommit`;
}

async function check(url: string): Promise<void> {
  expect(await (await fetch(`${url}/`)).text()).toContain('app.js');
  const search = await fetch(`${url}/api/shop/search`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-postcommit-dashboard': '1' },
    body: '{"type":"order.created"}',
  });
  expect(await search.json()).toEqual({ events: [] });
}

it('Express serves the dashboard', async () => {
  const app = express();
  const listener = nodeListener(dashboard);
  app.use((request, response, next) => (request.path.startsWith('/postcommit') ? listener(request, response) : next()));
  app.use(express.json());
  const server = createServer(app);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closes.push(() => server.close());
  await check(urlOf(server));
});

it('Fastify serves the dashboard', async () => {
  const app = Fastify();
  const listener = nodeListener(dashboard);
  app.register(async (scope) => {
    // The dashboard reads the body itself.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
    scope.all('/postcommit/*', (request, reply) => {
      reply.hijack();
      return listener(request.raw, reply.raw);
    });
  });
  await app.listen({ port: 0, host: '127.0.0.1' });
  closes.push(() => app.close());
  await check(urlOf(app.server));
});

it('Hono serves the dashboard', async () => {
  const app = new Hono();
  app.all('/postcommit/*', (c) => dashboard.fetch(c.req.raw, c.env as object));
  const server = await new Promise<Server>((resolve) => {
    const started = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, () => resolve(started as Server));
  });
  closes.push(() => server.close());
  await check(urlOf(server));
});
