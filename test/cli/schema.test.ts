import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { runHere } from './fake-terminal.ts';
import { jsonError, projectFolder } from './run-cli.ts';

const config = (definition: string) => `
  import { defineConfig, defineEvents } from 'postcommit';
  export default defineConfig({ events: defineEvents({ 'order.created': ${definition} }) });`;
const object = (properties: object, required: string[]) => JSON.stringify({ type: 'object', properties, required });
const text = { type: 'string' };
const first = `{ jsonSchema: ${object({ id: text, total: { type: 'number' } }, ['id', 'total'])} }`;

/** A config file with another name for each content: a process loads a module once. */
function project(definition: string) {
  const cwd = projectFolder({});
  let count = 0;
  const write = (content: string) => writeFileSync(join(cwd, `config-${++count}.ts`), content);
  write(config(definition));
  return {
    cwd,
    write,
    check: (...args: string[]) => runHere(['schema', 'check', '--config', `config-${count}.ts`, ...args], { cwd }),
    change: (next: string) => write(config(next)),
    recorded: () => readFileSync(join(cwd, 'postcommit.schema.json'), 'utf8'),
  };
}

describe('postcommit schema check', () => {
  it('fails on a change that breaks consumers until --update accepts it', async () => {
    const { check, change, recorded } = project(first);
    expect(await check('--update')).toMatchObject({ code: 0, stderr: '' });
    expect(await check()).toMatchObject({ code: 0, stdout: 'no change breaks consumers\n' });
    change(`{ jsonSchema: ${object({ id: text, amount: { type: 'number' } }, ['id', 'amount'])} }`);
    const before = recorded();
    const { code, stdout } = await check();
    expect(code).toBe(1);
    expect(stdout).toContain('breaking  order.created: total: required field removed (renamed to amount?)');
    expect(stdout).toContain('breaking  order.created: amount: new required field');
    expect(recorded()).toBe(before);
    expect(await check('--update')).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('accepted  order.created: total'),
    });
    expect(await check('--strict')).toMatchObject({ code: 0 });
  });

  it('has a verdict for each mode', async () => {
    const { check, change } = project(first);
    await check('--update');
    change(`{ jsonSchema: ${object({ id: text, total: { type: ['number', 'null'] } }, ['id', 'total'])} }`);
    const codes = [];
    for (const mode of ['backward', 'forward', 'full']) codes.push((await check('--mode', mode)).code);
    expect(codes).toEqual([0, 1, 1]);
    const { stdout } = await check('--json');
    expect(JSON.parse(stdout)).toMatchObject({
      mode: 'full',
      upToDate: false,
      changed: ['order.created'],
      breaking: [{ type: 'order.created', path: 'total', rule: 'type', breaks: 'oldConsumers' }],
    });
  });

  it('a change that breaks nothing fails with --strict only', async () => {
    const { check, change } = project(first);
    await check('--update');
    change(`{ jsonSchema: ${object({ id: text, total: { type: 'number' }, note: text }, ['id', 'total'])} }`);
    expect(await check()).toMatchObject({ code: 0, stdout: expect.stringContaining('is out of date') });
    expect(await check('--strict')).toMatchObject({ code: 1 });
  });

  it('a raised version allows what its upcasts cover, and no more', async () => {
    const { check, change, cwd } = project(first);
    await check('--update');
    const wider = object({ id: text, total: { type: 'number' }, currency: text }, ['id', 'total', 'currency']);
    change(`{ jsonSchema: ${wider} }`);
    expect(await check()).toMatchObject({ code: 1 });
    change(`{ version: 2, upcast: { 1: (v1) => ({ ...v1, currency: 'EUR' }) }, jsonSchema: ${wider} }`);
    expect(await check()).toMatchObject({ code: 0 });
    change(`{ version: 2, upcast: { 1: (v1) => v1 }, jsonSchema: ${object({ id: text }, ['id'])} }`);
    expect(await check('--mode', 'backward')).toMatchObject({ code: 0 });
    expect(await check()).toMatchObject({ code: 1, stdout: expect.stringContaining('total: required field removed') });
    writeFileSync(
      join(cwd, 'main.json'),
      '{"postcommit":1,"events":{"order.created":{"version":3,"schema":true},"order.paid":{"version":1,"schema":true}}}',
    );
    const { code, stdout } = await check('--against', 'main.json');
    expect(code).toBe(1);
    expect(stdout).toContain('order.created: version lowered from 3 to 2');
    expect(stdout).toContain('order.paid: event type removed');
  });

  it('refuses what it cannot work with, with exit code 2', async () => {
    const { check, cwd, write } = project(first);
    const codeOf = async (...args: string[]) => {
      const result = await check('--json', ...args);
      return [result.code, jsonError(result).code];
    };
    expect(await codeOf()).toEqual([2, 'POSTCOMMIT_E_NO_SCHEMA_FILE']);
    expect(await codeOf('--mode', 'sideways')).toEqual([2, 'POSTCOMMIT_E_USAGE']);
    expect(await codeOf('--update', '--against', 'x')).toEqual([2, 'POSTCOMMIT_E_USAGE']);
    writeFileSync(join(cwd, 'postcommit.schema.json'), '<<<<<<< HEAD');
    expect(await codeOf()).toEqual([2, 'POSTCOMMIT_E_BAD_SCHEMA_FILE']);
    write('export default { events: {} };');
    expect(await codeOf()).toEqual([2, 'POSTCOMMIT_E_BAD_CONFIG']);
    write('export default {};');
    expect(await codeOf()).toEqual([2, 'POSTCOMMIT_E_BAD_CONFIG']);
  });
});

describe('postcommit schema types', () => {
  it('prints the types, or writes them to a file', async () => {
    const cwd = projectFolder({ 'postcommit.config.ts': config(first) });
    const { code, stdout } = await runHere(['schema', 'types'], { cwd });
    expect(code).toBe(0);
    expect(stdout).toContain('export type OrderCreated = {\n  "id": string;\n  "total": number;\n};');
    expect(stdout).toContain('"order.created": OrderCreated;');
    const written = await runHere(['schema', 'types', '--out', 'types/events.d.ts', '--json'], { cwd });
    expect(JSON.parse(written.stdout)).toEqual({
      types: ['order.created'],
      file: join(cwd, 'types/events.d.ts'),
    });
    expect(readFileSync(join(cwd, 'types/events.d.ts'), 'utf8')).toBe(stdout);
  });
});

describe('postcommit schema docs', () => {
  it('prints the AsyncAPI document, or writes it with the pages and removes those of events that are gone', async () => {
    const cwd = projectFolder({
      'postcommit.config.ts': config(first),
      'package.json': '{"name":"shop","type":"module"}',
    });
    const { code, stdout } = await runHere(['schema', 'docs'], { cwd });
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ asyncapi: '3.0.0', info: { title: 'shop', version: '0.0.0' } });
    mkdirSync(join(cwd, 'pages'));
    writeFileSync(join(cwd, 'pages/mine.md'), '# Mine');
    writeFileSync(join(cwd, 'pages/order.gone.md'), '<!-- Generated by `postcommit schema docs`. Do not edit. -->\n');
    const written = await runHere(['schema', 'docs', '--out', 'pages', '--title', 'The shop', '--json'], { cwd });
    expect(JSON.parse(written.stdout)).toEqual({
      folder: join(cwd, 'pages'),
      written: ['README.md', 'asyncapi.json', 'order.created.md'],
      removed: ['order.gone.md'],
    });
    expect(readdirSync(join(cwd, 'pages')).sort()).toEqual([
      'README.md',
      'asyncapi.json',
      'mine.md',
      'order.created.md',
    ]);
    expect(JSON.parse(readFileSync(join(cwd, 'pages/asyncapi.json'), 'utf8')).info.title).toBe('The shop');
  });
});

describe('postcommit schema check --registry', () => {
  it('has an exit code of its own for a registry that is down, and writes nothing', async () => {
    const { check, cwd } = project(first);
    const result = await check('--update', '--json', '--registry', 'http://127.0.0.1:1');
    expect(result.code).toBe(6);
    expect(jsonError(result)).toMatchObject({ code: 'POSTCOMMIT_E_REGISTRY_UNREACHABLE' });
    expect(readdirSync(cwd)).not.toContain('postcommit.schema.json');
    expect(await check('--update', '--registry', 'localhost')).toMatchObject({ code: 2 });
  });

  it('refuses subjects that it cannot name, and one subject for several types', async () => {
    const { check, write } = project(first);
    const subject = async (pattern: string) => {
      const result = await check('--update', '--json', '--registry', 'http://127.0.0.1:1', '--subject', pattern);
      return [result.code, jsonError(result)?.code];
    };
    expect(await subject('{topic}-value')).toEqual([2, 'POSTCOMMIT_E_USAGE']);
    expect(await subject('')).toEqual([2, 'POSTCOMMIT_E_USAGE']);
    // The registry is asked: it is down.
    expect(await subject('orders-value')).toEqual([6, 'POSTCOMMIT_E_REGISTRY_UNREACHABLE']);
    write(`import { defineConfig, defineEvents } from 'postcommit';
      export default defineConfig({ events: defineEvents({ 'order.created': {}, 'order.paid': {} }) });`);
    expect(await subject('orders-value')).toEqual([2, 'POSTCOMMIT_E_USAGE']);
    expect(await subject('orders-{type}')).toEqual([6, 'POSTCOMMIT_E_REGISTRY_UNREACHABLE']);
  });
});
