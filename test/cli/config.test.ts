import { mkdirSync, realpathSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findConfig, loadConfig, loadHandlers } from '../../src/cli/config.ts';
import { configTemplates } from '../../src/cli/config-templates.ts';
import { jsonErrorLine } from '../../src/cli/json-error-line.ts';
import { type Handler, PostcommitError, Reject } from '../../src/index.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { projectFolder } from './run-cli.ts';

async function refusal(load: Promise<unknown>): Promise<string> {
  const error = await load.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(PostcommitError);
  expect((error as PostcommitError).code).toBe('POSTCOMMIT_E_BAD_CONFIG');
  return (error as PostcommitError).message;
}

function configFile(name: string, text: string): string {
  return join(projectFolder({ [name]: text }), name);
}

describe('finding the config file', () => {
  it('goes up to the folder with package.json and no further', () => {
    const outer = projectFolder({ 'postcommit.config.json': '{}' });
    const inner = join(outer, 'packages/app/src');
    mkdirSync(inner, { recursive: true });
    expect(findConfig(inner)).toBe(join(outer, 'postcommit.config.json'));
    writeFileSync(join(outer, 'packages/app/package.json'), '{}');
    expect(findConfig(inner)).toBeUndefined();
    writeFileSync(join(outer, 'packages/app/postcommit.config.mjs'), '');
    expect(findConfig(inner)).toBe(join(outer, 'packages/app/postcommit.config.mjs'));
  });

  it('takes the source before what the compiler made of it', () => {
    const folder = projectFolder({
      'postcommit.config.js': '',
      'postcommit.config.ts': '',
      'postcommit.config.json': '',
    });
    expect(findConfig(folder)).toBe(join(folder, 'postcommit.config.ts'));
  });
});

describe('loading the config file', () => {
  it.each([
    [
      'postcommit.config.ts',
      "const ms: number = await Promise.resolve(900); export default { schema: 'a', leaseMs: ms };",
    ],
    ['postcommit.config.mts', "export default { schema: 'a', leaseMs: 900 } satisfies object;"],
    ['postcommit.config.js', "export default { schema: 'a', leaseMs: 900 };"],
    ['promised.js', "export default Promise.resolve({ schema: 'a', leaseMs: 900 });"],
    ['postcommit.config.mjs', "export default { schema: 'a', leaseMs: 900 };"],
    ['postcommit.config.json', '\uFEFF{ "schema": "a", "leaseMs": 900 }'],
    ['anything.cjs', "module.exports = { schema: 'a', leaseMs: 900 };"],
  ])('reads %s', async (name, text) => {
    expect(await loadConfig(configFile(name, text))).toEqual({ schema: 'a', leaseMs: 900 });
  });

  it('gives it the package that runs, so that its Reject is ours, also in files it imports', async () => {
    const folder = projectFolder({
      'postcommit.config.ts': `
        import { defineConfig } from 'postcommit';
        import { refuse } from './refuse.ts';
        export default defineConfig({ handlers: { a: { refuse } } });`,
      'refuse.ts': `
        import { Reject, type Handler } from 'postcommit';
        export const refuse: Handler = () => { throw new Reject('no'); };`,
    });
    const file = join(folder, 'postcommit.config.ts');
    const handlers = await loadHandlers(file, await loadConfig(file));
    const refuse = handlers.a?.refuse as Handler;
    expect(() => refuse({} as never, {} as never)).toThrow(Reject);
  });

  it('follows the path aliases of tsconfig.json', async () => {
    const folder = projectFolder({
      'tsconfig.json': '{ "compilerOptions": { "paths": { "#app/*": ["./*"] } } }',
      'postcommit.config.ts': "import { schema } from '#app/schema.ts'; export default { schema };",
      'schema.ts': "export const schema: string = 'aliased';",
    });
    expect(await loadConfig(join(folder, 'postcommit.config.ts'))).toEqual({ schema: 'aliased' });
  });

  it('tells file, line and kind of a syntax error', async () => {
    const file = configFile('postcommit.config.ts', "export default {\n  schema: 'a',\n  leaseMs: : 3,\n};\n");
    const message = await refusal(loadConfig(file));
    expect(message).toContain('line 3');
    expect(message).toContain('Unexpected token');
    expect(message).toContain(file);
  });

  it('names the imported file that has the syntax error', async () => {
    const folder = projectFolder({
      'postcommit.config.ts': "import './part.ts';\nexport default {};",
      'part.ts': '\n\nlet x = ;',
    });
    const message = await refusal(loadConfig(join(folder, 'postcommit.config.ts')));
    expect(message).toContain(`${realpathSync(folder)}/part.ts:3`);
  });

  it('tells the line of an error that the file throws', async () => {
    const file = configFile('postcommit.config.ts', "interface X { a: 1 }\n\nthrow new TypeError('no such thing');");
    expect(await refusal(loadConfig(file))).toMatch(/failed at line 3: TypeError: no such thing/);
  });

  it('loads what init writes, with the lines about a broker and its limits uncommented', async () => {
    const text = configTemplates.js
      .replace(/^( *)\/\/ (import |destinations:|route:|\w+BytesMax:)/gm, '$1$2')
      .replace("'postcommit/kafka'", "'./kafka.js'");
    const folder = projectFolder({
      'postcommit.config.js': text,
      'kafka.js': "export const kafka = () => ({ kind: 'kafka' });",
    });
    const config = await loadConfig(join(folder, 'postcommit.config.js'));
    expect(config).toMatchObject({
      destinations: { events: { kind: 'kafka' } },
      inFlightBytesMax: 33_554_432,
      prefetchBytesMax: 33_554_432,
      loadBytesMax: 134_217_728,
    });
  });

  it('ends a message that has a full stop with one', async () => {
    const file = configFile('postcommit.config.js', "throw new Error('No vault here.');");
    expect(await refusal(loadConfig(file))).toContain('No vault here. (');
  });

  it('tells which import cannot be found', async () => {
    const file = configFile('postcommit.config.js', "import './nowhere.js';\nexport default {};");
    expect(await refusal(loadConfig(file))).toContain('./nowhere.js');
  });

  it.each([
    ['export const config = {};', 'only named exports: config'],
    ['const x = 1;', 'no exports at all'],
    ['export default () => ({});', 'Found a function'],
    ['export default [];', 'Found an array'],
    ['export default null;', 'Found null'],
    ["export default 'postgres://app:secret@db/shop';", 'Found a string'],
    ["export default Promise.reject(new Error('no vault'));", 'no vault'],
    ['export default { schema: 5 };', 'schema must be a string. Found a number'],
    ['export default { leasems: 5 };', 'Did you mean leaseMs?'],
    ['export default { zzz: 5 };', 'Valid options: connectionString'],
  ])('refuses %s', async (text, what) => {
    const message = await refusal(loadConfig(configFile('postcommit.config.mjs', text)));
    expect(message).toContain(what);
    expect(message).not.toContain('secret');
  });

  it('tells the line of an error in JSON, and nothing of what stands there', async () => {
    const text = '{\n  "connectionString": "postgres://app:secret@db/shop"\n  "schema": "a"\n}';
    const message = await refusal(loadConfig(configFile('postcommit.config.json', text)));
    expect(message).toContain('postcommit.config.json:3: Expected');
    const unquoted = await refusal(loadConfig(configFile('postcommit.config.json', '{\n "a": secret@db/shop }')));
    expect(unquoted).toContain('postcommit.config.json:2: Unexpected token');
    expect(message + unquoted).not.toContain('secret');
  });

  it('refuses a kind of file it cannot read', async () => {
    expect(await refusal(loadConfig(configFile('postcommit.yaml', 'schema: a')))).toContain('Found .yaml');
  });
});

describe('loading handlers', () => {
  it('takes them from the file that the config names', async () => {
    const folder = projectFolder({ 'handlers.ts': 'export default { a: { log: (event: unknown) => event } };' });
    const handlers = await loadHandlers(join(folder, 'postcommit.config.json'), { handlers: './handlers.ts' });
    expect(Object.keys(handlers.a ?? {})).toEqual(['log']);
  });

  it('refuses a relay without handlers', async () => {
    expect(await refusal(loadHandlers('/x/postcommit.config.ts', {}))).toContain('Found undefined');
    expect(await refusal(loadHandlers('/x/postcommit.config.ts', { handlers: {} }))).toContain('handlers is empty');
    expect(await refusal(loadHandlers('/x/postcommit.config.ts', { handlers: './no.ts' }))).toContain('/x/no.ts');
  });

  it('takes one that has destinations only', async () => {
    const destinations = { events: new ScriptedPublisher() };
    expect(await loadHandlers('/x/postcommit.config.ts', { destinations })).toEqual({});
    expect(await loadHandlers('/x/postcommit.config.ts', { destinations, handlers: {} })).toEqual({});
  });
});

describe('the line of an error in JSON', () => {
  it.each([
    ['', 1],
    ['{\n"a": 1,\n}', 3],
    ['{\n"a": 1\n"b": 2\n}', 3],
    ["{\n'a': 1 }", 2],
    ['[\n1,\n2,\ntru\n]', 4],
    ['{ "a": "x\ny" }', 1],
    ['{}\n\n{}', 3],
    ['// a comment\n{}', 1],
    ['{ "a": "\\q" }', 1],
    ['{\n "a": 01 }', 2],
  ])('of %j is %d', (text, line) => {
    expect(() => JSON.parse(text)).toThrow();
    expect(jsonErrorLine(text)).toBe(line);
  });
});
