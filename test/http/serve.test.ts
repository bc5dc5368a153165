import { connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import type { HttpServerOptions } from '../../src/http/serve.ts';
import { isLoopback, serveHttp } from '../../src/http/serve.ts';
import { until } from '../support/wait.ts';

/** As they were before the first server. */
const original = { Request: globalThis.Request, Response: globalThis.Response };

async function serve(options: Omit<HttpServerOptions, 'port'> & { port?: number }) {
  const server = await serveHttp({ port: 0, ...options });
  onTestFinished(() => server.stop());
  return server;
}

test('serves a fetch handler, on loopback by default', async () => {
  const { url, port } = await serve({
    fetch: async (request) =>
      new Response(`${request.method} ${new URL(request.url).pathname} ${await request.text()}`),
  });
  expect(url).toBe(`http://127.0.0.1:${port}`);
  const response = await fetch(`${url}/a/b?c`, { method: 'POST', body: 'hello' });
  expect(await response.text()).toBe('POST /a/b hello');
});

test('leaves the global Request and Response as they are', async () => {
  const { url } = await serve({ fetch: () => new Response('ok') });
  expect(await (await fetch(url)).text()).toBe('ok');
  expect(globalThis.Request).toBe(original.Request);
  expect(globalThis.Response).toBe(original.Response);
});

test('a handler that throws is answered with 500, without the error, and the server goes on', async () => {
  const errors: unknown[] = [];
  const { url } = await serve({
    fetch: (request) => {
      if (request.url.endsWith('/ok')) return new Response('ok');
      throw new Error('secret detail');
    },
    onError: (error) => errors.push(error),
  });
  const response = await fetch(`${url}/broken`);
  expect([response.status, await response.text()]).toEqual([500, 'internal error\n']);
  expect(errors).toEqual([new Error('secret detail')]);
  expect(await (await fetch(`${url}/ok`)).text()).toBe('ok');
});

test('a client that disconnects aborts its request and cancels the body of the response', async () => {
  const seen: string[] = [];
  const { url } = await serve({
    fetch: (request) => {
      request.signal.addEventListener('abort', () => seen.push('aborted'));
      const start = (controller: ReadableStreamDefaultController) =>
        controller.enqueue(new TextEncoder().encode('data: 1\n\n'));
      const body = new ReadableStream({ start, cancel: () => void seen.push('cancelled') });
      return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
    },
  });
  const abort = new AbortController();
  const response = await fetch(url, { signal: abort.signal });
  const first = await response.body?.getReader().read();
  expect(new TextDecoder().decode(first?.value)).toBe('data: 1\n\n');
  abort.abort();
  await until(() => seen.includes('aborted') && seen.includes('cancelled'), {
    what: 'the request is aborted and its body cancelled',
  });
});

test('stops although a client keeps its connection and a response never ends', async () => {
  const server = await serveHttp({ port: 0, fetch: () => new Response(new ReadableStream({})) });
  const idle = connect(server.port, '127.0.0.1');
  const pending = fetch(server.url).then((response) => response.text());
  const failed = expect(pending).rejects.toThrow();
  await until(() => idle.readyState === 'open', { what: 'the connection is open' });
  await server.stop();
  await failed;
  await expect(fetch(server.url)).rejects.toThrow();
  idle.destroy();
});

test('takes 500 connections at most', async () => {
  const { port } = await serve({ fetch: () => new Response() });
  const sockets = Array.from({ length: 501 }, () => connect(port, '127.0.0.1').on('error', () => {}));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
  });
  const ended = () => sockets.filter((socket) => socket.readyState !== 'open' && !socket.connecting).length;
  for (const socket of sockets) socket.resume();
  await until(() => ended() === 1, { what: 'one is closed' });
});

test('says why it cannot listen', async () => {
  const { port } = await serve({ fetch: () => new Response() });
  const fetch = () => new Response();
  await expect(serveHttp({ port, fetch })).rejects.toMatchObject({
    code: 'POSTCOMMIT_E_CANNOT_LISTEN',
    message: expect.stringContaining(`127.0.0.1, port ${port}: listen EADDRINUSE`),
  });
  await expect(serveHttp({ port: 70_000, fetch })).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
  await expect(serveHttp({ port: 0, host: '', fetch })).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
});

test.each([
  ['127.0.0.1', true],
  ['127.8.9.1', true],
  ['::1', true],
  ['localhost', true],
  ['0.0.0.0', false],
  ['::', false],
  ['127.0.0.1.example.com', false],
  ['10.0.0.1', false],
])('%s is loopback: %s', (host, expected) => expect(isLoopback(host)).toBe(expected));
