import { randomUUID } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type ConfluentJsonOptions, confluentJson, defineEvents } from '../../src/index.ts';
import { SchemaRegistry } from '../../src/schema/registry.ts';
import { runHere } from '../cli/fake-terminal.ts';
import { jsonError, projectFolder } from '../cli/run-cli.ts';
import { fileService } from '../support/services.ts';
import { deliveredEvent } from '../wire/event.ts';
import { pairs } from './pairs.ts';

const server = fileService('schema-registry');

/** Where Apicurio has another verdict. docs/schema.md says why. */
const differences: Record<string, { backward: boolean; forward: boolean }> = {
  'an optional field added': { backward: false, forward: true },
  'an optional field renamed': { backward: false, forward: false },
  'an object was closed': { backward: false, forward: true },
  'a field removed from a closed object': { backward: false, forward: true },
  'the values of a record widened': { backward: false, forward: false },
  'two objects joined with allOf instead of one': { backward: false, forward: false },
};

async function setMode(subject: string, compatibility: string): Promise<void> {
  const response = await fetch(`${server.url}/config/${encodeURIComponent(subject)}`, {
    method: 'PUT',
    headers: { 'content-type': 'application/vnd.schemaregistry.v1+json' },
    body: JSON.stringify({ compatibility }),
  });
  expect(response.status, await response.text()).toBe(200);
}

it('every difference is one of a known change', () => {
  expect(pairs.map(({ name }) => name)).toEqual(expect.arrayContaining(Object.keys(differences)));
});

it.each(pairs)('the registry and the check agree, or differ as documented: $name', async (pair) => {
  const { name, before, after, backward, forward } = pair;
  const registry = new SchemaRegistry(server.url);
  const subject = `${name} ${randomUUID()}`;
  expect(await registry.lookUp(subject, before)).toBeUndefined();
  expect(await registry.check(subject, before)).toEqual({ isCompatible: true, messages: [] });
  const id = await registry.register(subject, before);
  expect(await registry.register(subject, before)).toBe(id);
  expect(await registry.lookUp(subject, before)).toBe(id);
  const verdict = async (mode: string) => {
    await setMode(subject, mode);
    return (await registry.check(subject, after)).isCompatible;
  };
  const expected = differences[name] ?? { backward, forward };
  expect({
    backward: await verdict('BACKWARD'),
    forward: await verdict('FORWARD'),
    full: await verdict('FULL'),
  }).toEqual({ ...expected, full: expected.backward && expected.forward });
});

describe('postcommit schema check --registry', () => {
  const config = (type: string, fields: Record<string, string>) => `
    import { defineConfig, defineEvents } from 'postcommit';
    export default defineConfig({ events: defineEvents({ '${type}': { jsonSchema: ${JSON.stringify({
      type: 'object',
      properties: Object.fromEntries(Object.entries(fields).map(([name, kind]) => [name, { type: kind }])),
      required: Object.keys(fields),
    })} } }) });`;

  it('registers, looks up, and refuses what the registry refuses', async () => {
    const type = `order.created.${randomUUID()}`;
    const cwd = projectFolder({
      'first.ts': config(type, { id: 'string' }),
      'next.ts': config(type, { id: 'number' }),
    });
    const check = async (file: string, ...args: string[]) => {
      const command = ['schema', 'check', '--config', file, '--registry', server.url, '--json', ...args];
      const result = await runHere(command, { cwd });
      return { ...result, json: result.stdout === '' ? undefined : JSON.parse(result.stdout) };
    };
    const file = join(cwd, 'postcommit.schema.json');
    writeFileSync(file, '{"postcommit":1,"events":{}}');
    expect(await check('first.ts')).toMatchObject({ code: 0, json: { registry: { missing: [type], registered: [] } } });
    expect(await check('first.ts', '--strict')).toMatchObject({ code: 1 });
    expect(await check('first.ts', '--update')).toMatchObject({
      code: 0,
      json: { updated: true, registry: { missing: [], registered: [type], refused: [] } },
    });
    expect(existsSync(file)).toBe(true);
    expect(await check('first.ts', '--strict')).toMatchObject({ code: 0, json: { registry: { missing: [] } } });
    await setMode(type, 'FULL');
    // The file would take it with --update. The registry does not, so the file stays as well.
    expect(await check('next.ts', '--update')).toMatchObject({
      code: 1,
      json: { updated: false, registry: { registered: [], refused: [{ type }] } },
    });
    expect(await check('first.ts', '--strict')).toMatchObject({ code: 0 });
    const text = await runHere(['schema', 'check', '--config', 'next.ts', '--registry', server.url], { cwd });
    expect(text.stdout).toContain(`refused  ${type}: incompatible with its latest version in the registry`);
  });

  it('registers the schema in the subject in which confluentJson() looks it up', async () => {
    const type = `order.created.${randomUUID()}`;
    const jsonSchema = { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] };
    const events = defineEvents({ [type]: { jsonSchema } });
    const cwd = projectFolder({ 'config.ts': config(type, { id: 'string' }) });
    const register = (...args: string[]) =>
      runHere(['schema', 'check', '--config', 'config.ts', '--registry', server.url, '--update', ...args], { cwd });
    const event = deliveredEvent({ type, schemaVersion: 1, payloadJson: '{"id":"1"}' });
    const serialize = async (options: Partial<ConfluentJsonOptions> = {}) =>
      confluentJson({ registry: server.url, events, ...options }).serialize(event, {
        cloudEventsPrefix: 'ce_',
        topic: 'orders',
      });
    await expect(serialize()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_SCHEMA_NOT_REGISTERED' });
    expect(await register()).toMatchObject({ code: 0 });
    expect(await serialize()).toMatchObject({ body: expect.anything() });
    const ofTopic = { subject: '{topic}-{type}' };
    await expect(serialize(ofTopic)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_SCHEMA_NOT_REGISTERED' });
    expect(await register('--subject', 'orders-{type}')).toMatchObject({ code: 0 });
    expect(await serialize(ofTopic)).toMatchObject({ body: expect.anything() });
  });

  it.skipIf(server.given)('tells a registry that is down from a refusal', async () => {
    const cwd = projectFolder({ 'down.ts': config('a', { id: 'string' }) });
    await server.own.stop();
    const command = ['schema', 'check', '--config', 'down.ts', '--registry', server.url, '--json', '--update'];
    const result = await runHere(command, { cwd });
    expect(result.code).toBe(6);
    expect(jsonError(result)).toMatchObject({ code: 'POSTCOMMIT_E_REGISTRY_UNREACHABLE' });
    expect(existsSync(join(cwd, 'postcommit.schema.json'))).toBe(false);
    await server.own.start();
    expect(await runHere(command, { cwd })).toMatchObject({ code: 0 });
  });
});
