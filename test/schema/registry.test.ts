import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { toDraft7 } from '../../src/schema/draft-7.ts';
import { SchemaRegistry } from '../../src/schema/registry.ts';

interface Request {
  path: string | undefined;
  authorization: string | undefined;
}

/** Not a registry: a server that gives the same answer to everything, or none. The real one is in registry-pairs.test.ts. */
async function answering(status: number | undefined, body = '') {
  const requests: Request[] = [];
  const server = createServer((request, response) => {
    requests.push({ path: request.url, authorization: request.headers.authorization });
    if (status !== undefined) response.writeHead(status).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const close = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  onTestFinished(async () => void (await close()));
  return { host: `127.0.0.1:${(server.address() as AddressInfo).port}`, requests, close };
}

describe('a registry that does not help', () => {
  it.each([
    [503, '', 'POSTCOMMIT_E_REGISTRY_UNREACHABLE', 'it answers with status 503'],
    [429, '', 'POSTCOMMIT_E_REGISTRY_UNREACHABLE', 'it answers with status 429'],
    [500, '{"error_code":50001,"message":"store failed."}', 'POSTCOMMIT_E_REGISTRY_UNREACHABLE', '500: store failed.'],
    [401, '', 'POSTCOMMIT_E_REGISTRY_REFUSED', 'it answers with status 401'],
    [404, '<h1>Not found</h1>', 'POSTCOMMIT_E_REGISTRY_REFUSED', 'it answers with status 404'],
    [422, '{"error_code":42201,"message":"Invalid schema"}', 'POSTCOMMIT_E_SCHEMA_REFUSED', '422: Invalid schema'],
    [409, '{"error_code":409,"message":"Incompatible"}', 'POSTCOMMIT_E_SCHEMA_REFUSED', '409: Incompatible'],
    [200, '<h1>Welcome</h1>', 'POSTCOMMIT_E_REGISTRY_REFUSED', 'it does not answer like a schema registry'],
  ])('answers with %s %s', async (status, body, code, detail) => {
    const { host } = await answering(status, body);
    const registry = new SchemaRegistry(`http://me:secret@${host}/`);
    for (const call of [registry.lookUp('a', true), registry.register('a', true), registry.check('a', true)]) {
      const error = await call.catch((caught) => caught);
      expect(error).toMatchObject({ code, detail: expect.stringContaining(detail) });
      expect(error.message).not.toContain('secret');
    }
  });

  it('never answers, or is not there', async () => {
    const { host, close } = await answering(undefined);
    const unreachable = (detail: string) => ({
      code: 'POSTCOMMIT_E_REGISTRY_UNREACHABLE',
      detail: expect.stringContaining(detail),
    });
    const registry = new SchemaRegistry(`http://${host}`, { timeoutMs: 200 });
    await expect(registry.lookUp('a', true)).rejects.toMatchObject(unreachable('no answer in time'));
    await close();
    await expect(registry.lookUp('a', true)).rejects.toMatchObject(unreachable('ECONNREFUSED'));
  });

  it('has an invalid URL, which is not repeated', () => {
    for (const url of ['localhost:8081', 'ftp://me:secret@host', 'me:secret']) {
      expect(() => new SchemaRegistry(url)).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION' }));
      expect(() => new SchemaRegistry(url)).not.toThrow('secret');
    }
  });
});

it('sends user and password, and subjects that need escapes', async () => {
  const { host, requests } = await answering(200, '{"id":7}');
  const registry = new SchemaRegistry(`http://me:s%3Acret@${host}/apis/`);
  expect(await registry.register('order/created ü', true)).toBe(7);
  const authorization = `Basic ${Buffer.from('me:s:cret').toString('base64')}`;
  expect(requests).toEqual([{ path: '/apis/subjects/order%2Fcreated%20%C3%BC/versions', authorization }]);
});

it('writes schemas in the words of draft 7', () => {
  const $schema = 'http://json-schema.org/draft-07/schema#';
  expect(toDraft7(true)).toEqual({ $schema });
  expect(toDraft7(false)).toEqual({ $schema, not: {} });
  const tuple = { type: 'array', prefixItems: [{ type: 'string' }], items: false };
  const properties = { prefixItems: tuple, items: { const: { prefixItems: [] } } };
  expect(toDraft7({ $ref: '#/$defs/a', minProperties: 1, $defs: { a: { properties } } })).toEqual({
    $schema,
    allOf: [{ $ref: '#/$defs/a' }],
    minProperties: 1,
    $defs: {
      a: {
        properties: {
          prefixItems: { type: 'array', items: [{ type: 'string' }], additionalItems: false },
          items: { const: { prefixItems: [] } },
        },
      },
    },
  });
});

it('a URL with a password that is not escaped is refused with a code, and not repeated', () => {
  const make = () => new SchemaRegistry('http://user:p%zz@registry.example');
  expect(make).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION' }));
  expect(make).not.toThrow('p%zz');
});
