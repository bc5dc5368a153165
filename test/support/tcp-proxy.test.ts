import { type AddressInfo, createConnection, createServer, type Server, type Socket } from 'node:net';
import pg from 'pg';
import { afterEach, beforeEach, expect, inject, test } from 'vitest';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.ts';
import { nextEvent, until } from './wait.ts';

let echo: Server;
let proxy: TcpProxy;
const serverSide = new Set<Socket>();

beforeEach(async () => {
  echo = createServer((socket) => {
    serverSide.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => serverSide.delete(socket));
    socket.on('data', (chunk) => socket.write(chunk));
  });
  await new Promise<void>((ready) => echo.listen(0, '127.0.0.1', ready));
  const address = echo.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  proxy = await startTcpProxy({ host: '127.0.0.1', port: address.port });
});

afterEach(async () => {
  await proxy.close();
  await new Promise((closed) => echo.close(closed));
});

/** To the server and back, past the proxy. */
async function roundTrips(count: number): Promise<void> {
  const direct = await connect((echo.address() as AddressInfo).port);
  for (let trip = 1; trip <= count; trip++) {
    direct.write('.');
    await until(() => direct.received().length === trip, { what: 'the server has answered' });
  }
  direct.destroy();
  await until(() => serverSide.size === 1, { what: 'only the proxied connection is left' });
}

async function connect(port = proxy.port): Promise<Socket & { received: () => string }> {
  let text = '';
  const socket = createConnection({ host: '127.0.0.1', port });
  socket.on('error', () => {});
  socket.on('data', (chunk) => {
    text += chunk.toString();
  });
  await nextEvent(socket, 'connect');
  return Object.assign(socket, { received: () => text });
}

test('forwards both ways and closes in good order', async () => {
  const socket = await connect();
  socket.write('hello');
  await until(() => socket.received() === 'hello', { what: 'the echo came' });
  expect(proxy.connections).toBe(1);
  const closed = nextEvent<boolean>(socket, 'close');
  socket.end();
  expect(await closed).toBe(false);
  await until(() => proxy.connections === 0 && serverSide.size === 0, { what: 'both sides are closed' });
});

test('carries more than its buffers hold, unchanged', async () => {
  const socket = await connect();
  const block = 'x'.repeat(1024 * 1024);
  for (let i = 0; i < 20; i++) socket.write(block);
  await until(() => socket.received().length === 20 * block.length, { what: '20 MB came back' });
});

test('cut() resets open connections and takes new ones', async () => {
  const socket = await connect();
  socket.write('x');
  await until(() => socket.received() === 'x', { what: 'the echo came' });
  const closed = nextEvent<boolean>(socket, 'close');
  proxy.cut();
  expect(await closed).toBe(true);
  await until(() => proxy.connections === 0 && serverSide.size === 0, { what: 'both sides are closed' });

  const second = await connect();
  second.write('y');
  await until(() => second.received() === 'y', { what: 'the new connection works' });
  second.destroy();
});

test('refuse() keeps new connections out and leaves open ones alone', async () => {
  const open = await connect();
  open.write('x');
  await until(() => open.received() === 'x', { what: 'the echo came' });
  proxy.refuse();
  const refused = createConnection({ host: '127.0.0.1', port: proxy.port });
  refused.on('error', () => {});
  await nextEvent(refused, 'close');
  open.write('y');
  await until(() => open.received() === 'xy', { what: 'the open connection works' });

  proxy.accept();
  const accepted = await connect();
  accepted.write('z');
  await until(() => accepted.received() === 'z', { what: 'the new connection works' });
  open.destroy();
  accepted.destroy();
});

test('stall() forwards nothing, in order afterwards', async () => {
  const socket = await connect();
  socket.write('a');
  await until(() => socket.received() === 'a', { what: 'the echo came' });
  proxy.stall();
  socket.write('b');
  await roundTrips(20); // Nothing can signal that nothing came; what is not held back is there by then.
  expect(socket.received()).toBe('a');
  socket.write('c');
  proxy.resume();
  await until(() => socket.received() === 'abc', { what: 'the held bytes came' });
  socket.destroy();
});

test('a client that leaves during a stall is noticed by the server only afterwards', async () => {
  const socket = await connect();
  socket.write('a');
  await until(() => socket.received() === 'a', { what: 'the echo came' });
  proxy.stall();
  socket.resetAndDestroy();
  await roundTrips(20);
  expect(serverSide.size).toBe(1);
  proxy.resume();
  await until(() => serverSide.size === 0 && proxy.connections === 0, { what: 'the server side is closed' });
});

test('delayMs() adds its latency each way', async () => {
  const socket = await connect();
  socket.write('a');
  await until(() => socket.received() === 'a', { what: 'the echo came' });
  proxy.delayMs(40);
  const start = performance.now();
  socket.write('b');
  await until(() => socket.received() === 'ab', { what: 'the echo came' });
  const elapsed = performance.now() - start;
  expect(elapsed).toBeGreaterThanOrEqual(79);
  expect(elapsed).toBeLessThan(400);
  socket.destroy();
});

test('url() leads to the same database through the proxy', async () => {
  const serverUrl = inject('serverUrl');
  const { hostname, port } = new URL(serverUrl);
  const toPostgres = await startTcpProxy({ host: hostname, port: Number(port) });
  const client = new pg.Client({ connectionString: toPostgres.url(serverUrl) });
  await client.connect();
  const { rows } = await client.query('select 1 as one');
  expect(rows).toEqual([{ one: 1 }]);
  expect(toPostgres.connections).toBe(1);
  await client.end();
  await toPostgres.close();
});
