import { cp, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { type BuildOptions, build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sqlFiles } from '../../src/database/sql-files.ts';
import { migrationSql } from '../../src/index.ts';
import { packageVersion } from '../../src/package-version.ts';
import { createTestDatabase } from '../support/database.ts';
import { makeScratch, run } from './packed-project.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** CommonJS packages inside an ES module need a `require`; esbuild leaves that to the application. */
const requireBanner = {
  js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);",
};

const bundles: { name: string; file: string; options: BuildOptions }[] = [
  { name: 'CommonJS', file: 'server.cjs', options: { format: 'cjs' } },
  { name: 'ES module', file: 'server.mjs', options: { format: 'esm', banner: requireBanner } },
  {
    // As Next.js builds a server: everything in one minified CommonJS file, for production.
    name: 'minified server',
    file: 'minified.cjs',
    options: {
      format: 'cjs',
      minify: true,
      target: 'node20',
      define: { 'process.env.NODE_ENV': '"production"' },
    },
  },
];

describe('the package in a bundle', () => {
  let scratch: string;
  let postcommit: string;

  beforeAll(async () => {
    scratch = await makeScratch();
    // Not into dist: another test may be packing that.
    postcommit = join(scratch, 'project/node_modules/postcommit');
    await mkdir(postcommit, { recursive: true });
    await run(process.execPath, ['scripts/build.mjs', join(postcommit, 'dist')], root, {});
    await cp(join(root, 'package.json'), join(postcommit, 'package.json'));
    await cp(new URL('bundle-scenario.mjs', import.meta.url), join(scratch, 'project/server.mjs'));
    // Where the bundle runs there are no packages, and the package.json above it is the application's.
    await mkdir(join(scratch, 'app/server'), { recursive: true });
    await writeFile(join(scratch, 'app/package.json'), JSON.stringify({ name: 'app', version: '9.9.9' }));
  });
  afterAll(() => rm(scratch, { recursive: true, force: true }));

  async function bundle(entry: string, file: string, options: BuildOptions): Promise<string> {
    const outfile = join(scratch, 'app/server', file);
    const { warnings } = await build({
      entryPoints: [join(scratch, 'project', entry)],
      bundle: true,
      platform: 'node',
      outfile,
      logLevel: 'silent',
      ...options,
    });
    expect(warnings).toEqual([]);
    return outfile;
  }

  it.concurrent.each(bundles)('migrates, emits and relays as $name', async ({ file, options }) => {
    const outfile = await bundle('server.mjs', file, { nodePaths: [join(root, 'node_modules')], ...options });
    const database = await createTestDatabase({ migrate: false });
    try {
      const output = await run(process.execPath, [outfile], join(scratch, 'app'), { DATABASE_URL: database.url });
      expect(JSON.parse(output)).toEqual({
        applied: expect.arrayContaining(['0001_outbox']),
        appliedAgain: [],
        sqlLength: migrationSql().length,
        sent: ['order.confirmed 1', 'order.confirmed 2', 'order.created 1', 'order.created 2'],
        handled: ['1', '2'],
        version: packageVersion(),
        doctor: ['ok'],
        refused: 'ECONNREFUSED',
      });
    } finally {
      await database.close();
    }
  });

  it('needs of the three Kafka clients only the one that is used', async () => {
    const entry = `
      import { kafka } from 'postcommit/kafka';
      kafka({ brokers: ['127.0.0.1:1'] }).connect(new AbortController().signal).catch(({ code }) => console.log(code));
    `;
    await writeFile(join(scratch, 'project/kafka.mjs'), entry);
    for (const target of ['node20', 'node12.0']) {
      // For node12.0 esbuild writes require() instead of import().
      const outfile = await bundle('kafka.mjs', `kafka-${target}.cjs`, { format: 'cjs', minify: true, target });
      const output = await run(process.execPath, [outfile], join(scratch, 'app'), {});
      expect(output).toBe('POSTCOMMIT_E_PACKAGE_MISSING\n');
    }
  });

  it.each([
    ['without @opentelemetry/api', [], '{}'],
    ['with it, the trace context', ['@opentelemetry/api'], '{"traceparent":"00-trace"}'],
  ])('emits %s', async (name, more, headers) => {
    const project = join(scratch, name.replace(/\W+/g, '-'));
    await cp(postcommit, join(project, 'node_modules/postcommit'), { recursive: true });
    for (const each of ['pg', 'croner', ...more]) {
      const link = join(project, 'node_modules', each);
      await mkdir(dirname(link), { recursive: true });
      await symlink(join(root, 'node_modules', each), link, 'junction');
    }
    await cp(new URL('tracing-scenario.mjs', import.meta.url), join(project, 'scenario.mjs'));
    const database = await createTestDatabase();
    try {
      const output = await run(process.execPath, ['scenario.mjs'], project, { DATABASE_URL: database.url });
      expect(output).toBe(`${headers}\n`);
    } finally {
      await database.close();
    }
  });

  it('has the file of the heartbeat thread, which a bundle lacks', async () => {
    const project = join(scratch, 'thread');
    await cp(postcommit, join(project, 'node_modules/postcommit'), { recursive: true });
    await symlink(join(root, 'node_modules/pg'), join(project, 'node_modules/pg'), 'junction');
    await writeFile(
      join(project, 'scenario.mjs'),
      `import { spawnWorker } from './node_modules/postcommit/dist/relay/lease/spawn-worker.js';
       const worker = spawnWorker({ workerData: {} });
       worker?.on('exit', (code) => console.log('exit', code)) ?? console.log('no thread');`,
    );
    expect(await run(process.execPath, ['scenario.mjs'], project, {})).toBe('exit 0\n');
    await cp(join(project, 'scenario.mjs'), join(project, 'bundled.mjs'));
    const outfile = join(scratch, 'app/server/thread.cjs');
    await build({
      entryPoints: [join(project, 'bundled.mjs')],
      bundle: true,
      platform: 'node',
      outfile,
      logLevel: 'silent',
    });
    expect(await run(process.execPath, [outfile], join(scratch, 'app'), {})).toBe('no thread\n');
  });

  it('holds the files of migrations/ and the version that the sources read', async () => {
    const load = (module: string) => import(pathToFileURL(join(postcommit, 'dist', module)).href);
    expect((await load('database/sql-files.js')).sqlFiles()).toEqual(sqlFiles());
    expect((await load('package-version.js')).packageVersion()).toBe(packageVersion());
    expect(JSON.parse(await readFile(join(root, 'package.json'), 'utf8')).files).not.toContain('migrations');
  });
});
