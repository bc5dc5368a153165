import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** What an example may take for granted. Anything else it has to show. */
const prelude = `
import type { PoolClient, Pool } from 'pg';
import type { EventCatalogue, Outbox, OutboxEvent, Publisher, Relay, OutboxAdmin } from 'postcommit';
import type { AdapterHarness, PublisherHarness } from 'postcommit/testing';
declare global {
  const harness: PublisherHarness & AdapterHarness<unknown>;
  const FilePublisher: new (path: string) => Publisher;
  const orderType: { toBuffer(payload: unknown): Uint8Array };
  const outbox: Outbox<PoolClient>;
  const admin: OutboxAdmin;
  const relay: Relay;
  const events: EventCatalogue;
  const pool: Pool;
  const client: PoolClient;
  const order: { id: string; total: number };
  const event: OutboxEvent & { payload: Record<string, string> };
  const id: string;
  const total: number;
  function readToken(): Promise<string>;
  function insertRows(rows: readonly unknown[], signal: AbortSignal): Promise<Map<number, string>>;
  function generateReport(payload: unknown, signal: AbortSignal): Promise<void>;
  function sendReceipt(payload: unknown, options: { idempotencyKey: string }): Promise<void>;
  function sendReceipt(payload: unknown, options: { idempotencyKey: string }): Promise<void>;
}
`;

export interface Example {
  name: string;
  code: string;
}

async function sourceFiles(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries.filter((e) => e.isFile() && e.name.endsWith('.ts')).map((e) => join(e.parentPath, e.name));
}

/** The `@example`s of exported symbols, without those in files that are not part of the public API. */
async function symbolExamples(): Promise<Example[]> {
  const examples: Example[] = [];
  for (const file of await sourceFiles(join(root, 'src'))) {
    const name = relative(root, file);
    if (/^src\/(cli|demo|embedded|outbox|database\/(identifier|executor))/.test(name)) continue;
    const text = await readFile(file, 'utf8');
    for (const [index, comment] of [...text.matchAll(/\/\*\*.*?\*\//gs)].entries()) {
      const code = comment[0].split('@example')[1];
      if (code === undefined) continue;
      const lines = code.replace(/\*\/$/, '').split('\n').slice(1);
      examples.push({ name: `${name}#${index}`, code: lines.map((line) => line.replace(/^\s*\* ?/, '')).join('\n') });
    }
  }
  return examples;
}

async function pageExamples(): Promise<Example[]> {
  const files = await readdir(join(root, 'docs'), { recursive: true });
  const pages = files.filter((file) => file.endsWith('.md')).map((file) => `docs/${file}`);
  // Those of docs/frameworks are whole files; test/frameworks compiles and runs them.
  const docs = pages.filter((page) => !page.startsWith('docs/frameworks/'));
  const examples: Example[] = [];
  for (const page of ['README.md', ...docs]) {
    const text = await readFile(join(root, page), 'utf8');
    for (const [index, block] of [...text.matchAll(/```ts\n(.*?)```/gs)].entries()) {
      examples.push({ name: `${page}#${index}`, code: block[1] ?? '' });
    }
  }
  return examples;
}

/** What the package exports, e.g. `postcommit/webhook`, and the source it is built from. */
async function entryPoints(): Promise<Record<string, string[]>> {
  const { exports } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as {
    exports: Record<string, string | { default: string }>;
  };
  const paths: Record<string, string[]> = {};
  for (const [name, target] of Object.entries(exports)) {
    if (typeof target === 'string') continue;
    const source = target.default.replace('./dist/', 'src/').replace(/\.js$/, '.ts');
    paths[name.replace('.', 'postcommit')] = [join(root, source)];
  }
  return paths;
}

function toModule(example: Example): string {
  const imports = [...example.code.matchAll(/^import .*$/gm)].map((match) => match[0]);
  const body = example.code
    .replace(/^import .*$/gm, '')
    .replace(/^export default /gm, 'void ')
    .replace(/^export /gm, '');
  const named = [
    'createInbox',
    'createOutbox',
    'createRelay',
    'defineConfig',
    'defineEvents',
    'fromPg',
    'migrate',
    'migrationSql',
    'PostcommitError',
    'readEvent',
    'Reject',
  ];
  const missing = named.filter((name) => !imports.some((line) => line.includes(name)));
  const pgImport = imports.some((line) => /^import pg\b/.test(line)) ? '' : "import pg from 'pg';";
  return `${imports.join('\n')}\n${pgImport}\nimport { ${missing.join(', ')} } from 'postcommit';\nasync function example() {\n${body}\n}\nvoid example; void [pg, ${named.join(', ')}];\n`;
}

/** All examples in the docs and on public symbols. */
export async function listExamples(): Promise<Example[]> {
  return [...(await pageExamples()), ...(await symbolExamples())];
}

/** Whether an example needs the packages of test/adapters. */
export function needsDatabaseClients({ name }: Example): boolean {
  return /^(docs|src)\/adapters\/(?!pg\b)/.test(name);
}

/**
 * The errors of the compiler, with the names of the examples. Imports resolve as in a file of the folder `from`. `globals` are
 * declarations of what these examples may take for granted besides.
 */
export async function compileExamples(examples: readonly Example[], from: string, globals = ''): Promise<string> {
  // Below node_modules, so that imports of packages resolve as they would for a user.
  const scratch = join(root, from, 'node_modules/.cache', `postcommit-examples-${process.pid}`);
  await mkdir(scratch, { recursive: true });
  try {
    const config = {
      extends: join(root, 'tsconfig.json'),
      compilerOptions: {
        paths: await entryPoints(),
        typeRoots: [join(root, 'node_modules/@types')],
        noUnusedLocals: false,
      },
      include: ['*.ts', join(root, 'src/frameworks/nestjs/nest.d.ts')],
      exclude: [],
    };
    await writeFile(join(scratch, 'tsconfig.json'), JSON.stringify(config));
    await writeFile(join(scratch, 'package.json'), '{"type":"module"}');
    await writeFile(join(scratch, 'prelude.ts'), `${prelude}declare global {\n${globals}\n}\n`);
    const names = new Map<string, string>();
    for (const [index, example] of examples.entries()) {
      names.set(`example-${index}.ts`, example.name);
      await writeFile(join(scratch, `example-${index}.ts`), toModule(example));
    }
    const tsc = join(root, 'node_modules/.bin/tsc');
    const output = await promisify(execFile)(tsc, ['-p', scratch], { cwd: root }).then(
      () => '',
      (error: { stdout: string }) => error.stdout,
    );
    return output.replace(/\S*?(example-\d+\.ts)/g, (_, file: string) => names.get(file) ?? file);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}
