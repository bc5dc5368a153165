import { cp, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, type Metafile } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { importableWithPg, loadedAtImport, readEntryPoints, specifierOf } from './entry-points.ts';
import { run } from './packed-project.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
// Below node_modules, so that every broker client and framework could be loaded.
const scratch = join(root, 'node_modules/.cache', `postcommit-graph-${process.pid}`);

/** Packages that a subpath may load later, when they are needed. Any other subpath loads none. */
const loadedWhenNeeded: Record<string, string[]> = {
  './nestjs': ['@hono/node-server', '@opentelemetry/api'],
  '.': ['@hono/node-server', '@opentelemetry/api'],
  // The other two clients by names that bundlers do not see: an application needs only the one that it uses.
  // Their consumers restore the trace of an event.
  './kafka': ['@opentelemetry/api', 'kafkajs'],
  './rabbitmq': ['@opentelemetry/api', 'amqplib'],
  './nats': ['@nats-io/jetstream', '@nats-io/transport-node', '@opentelemetry/api'],
  './redis': ['@opentelemetry/api', 'redis'],
  './sqs': ['@aws-sdk/client-sqs', '@opentelemetry/api'],
  './sns': ['@aws-sdk/client-sns'],
  './testing': ['@opentelemetry/api'],
  './webhook': ['@opentelemetry/api'],
};

/** Pools, timers, sockets and threads would keep a process from ending, or show here. Prints what is left and what was loaded. */
const probe = `
  import { register } from 'node:module';
  import { readFileSync, writeFileSync } from 'node:fs';
  const log = process.argv[2] + '.log';
  writeFileSync(log, '');
  const hooks = 'import { appendFileSync } from "node:fs";' +
    'export async function load(url, context, next) {' +
    '  appendFileSync(' + JSON.stringify(log) + ', url + "\\\\n"); return next(url, context); }';
  register('data:text/javascript,' + encodeURIComponent(hooks));
  const before = { resources: process.getActiveResourcesInfo(), events: process.eventNames(), globals: Object.keys(globalThis) };
  for (const specifier of JSON.parse(process.argv[3])) await import(specifier);
  const isNew = (name, known) => !known.includes(name);
  console.log(JSON.stringify({
    resources: process.getActiveResourcesInfo().filter((name) => isNew(name, before.resources)),
    events: process.eventNames().filter((name) => isNew(name, before.events)),
    globals: Object.keys(globalThis).filter((name) => isNew(name, before.globals)),
    loaded: readFileSync(log, 'utf8').split('\\n').filter(Boolean),
  }));
`;

describe('the modules of the built package', () => {
  /** By subpath. */
  const modules = new Map<string, string>();

  beforeAll(async () => {
    const postcommit = join(scratch, 'node_modules/postcommit');
    await mkdir(postcommit, { recursive: true });
    await run(process.execPath, ['scripts/build.mjs', join(postcommit, 'dist')], root, {});
    await cp(join(root, 'package.json'), join(postcommit, 'package.json'));
    await writeFile(join(scratch, 'probe.mjs'), probe);
    for (const [subpath, module] of Object.entries(await readEntryPoints())) {
      modules.set(subpath, join(postcommit, module));
    }
  });
  afterAll(() => rm(scratch, { recursive: true, force: true }));

  it('each subpath loads only the packages of its own, most of them when they are needed', async () => {
    const { metafile } = await build({
      entryPoints: [...modules.values()],
      outdir: join(scratch, 'graph'),
      bundle: true,
      write: false,
      metafile: true,
      packages: 'external',
      platform: 'node',
      format: 'esm',
      logLevel: 'silent',
      absWorkingDir: scratch,
    });
    const found = (packagesOf: (entry: string) => string[]) =>
      Object.fromEntries([...modules].map(([subpath, file]) => [subpath, packagesOf(file)]));
    const expected = (table: Record<string, string[]>) =>
      Object.fromEntries([...modules.keys()].map((subpath) => [subpath, table[subpath] ?? []]));
    const graph = new ModuleGraph(metafile, scratch);
    expect(found((entry) => graph.packages(entry, ['import-statement']))).toEqual(expected(loadedAtImport));
    const all = found((entry) => graph.packages(entry, ['import-statement', 'dynamic-import', 'require-call']));
    const later = Object.entries(all).map(([subpath, names]) => [
      subpath,
      names.filter((name) => !loadedAtImport[subpath]?.includes(name)),
    ]);
    expect(Object.fromEntries(later)).toEqual(expected(loadedWhenNeeded));
  });

  it("import 'postcommit' loads pg and croner, although every client and framework is there, and starts nothing", async () => {
    const { loaded, ...left } = await importInProcess(['postcommit']);
    expect(packagesOf(loaded)).toEqual(['croner', 'pg', 'postcommit']);
    expect(left).toEqual({ resources: [], events: [], globals: [] });
    // With what it loads, node:http takes 13 MB.
    expect(loaded.filter((url) => /^node:https?$/.test(url))).toEqual([]);
  });

  it('no other subpath starts anything either', async () => {
    const { loaded, ...left } = await importInProcess((await importableWithPg()).map(specifierOf));
    expect(packagesOf(loaded)).toEqual(['croner', 'pg', 'postcommit']);
    expect(left).toEqual({ resources: [], events: [], globals: [] });
  });

  async function importInProcess(specifiers: string[]) {
    const args = ['probe.mjs', join(scratch, 'loaded'), JSON.stringify(specifiers)];
    const output = await run(process.execPath, args, scratch, {});
    return JSON.parse(output) as { resources: string[]; events: string[]; globals: string[]; loaded: string[] };
  }
});

/** The packages that these URLs belong to. */
function packagesOf(urls: string[]): string[] {
  const names = urls.map((url) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url)?.[1]);
  return [...new Set(names.filter((name) => name !== undefined))].sort();
}

type ImportKind = Metafile['inputs'][string]['imports'][number]['kind'];

class ModuleGraph {
  readonly #metafile: Metafile;
  readonly #folder: string;

  constructor(metafile: Metafile, folder: string) {
    this.#metafile = metafile;
    this.#folder = folder;
  }

  /** The packages that a module and what it imports in these ways import in these ways. */
  packages(entry: string, kinds: readonly ImportKind[]): string[] {
    const names = new Set<string>();
    const seen = new Set<string>();
    const visit = (file: string) => {
      if (seen.has(file)) return;
      seen.add(file);
      for (const { path, kind, external } of this.#metafile.inputs[file]?.imports ?? []) {
        if (!kinds.includes(kind)) continue;
        if (!external) visit(path);
        else if (!path.startsWith('node:')) names.add(path.split('/', path.startsWith('@') ? 2 : 1).join('/'));
      }
    };
    const file = Object.keys(this.#metafile.inputs).find((input) => join(this.#folder, input) === entry);
    if (file === undefined) throw new Error(`${entry} is not in the graph`);
    visit(file);
    return [...names].sort();
  }
}
