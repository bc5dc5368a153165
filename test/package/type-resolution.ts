import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { importableWithPg, readEntryPoints, specifierOf } from './entry-points.ts';
import { run } from './packed-project.ts';

const tsc = fileURLToPath(new URL('../../node_modules/typescript/bin/tsc', import.meta.url));

/** Ways in which projects resolve modules. `files` are those that mean ESM, or CommonJS, in that mode. */
const modes = [
  { module: 'node16', moduleResolution: 'node16', files: { 'esm.mts': esm } },
  // CommonJS by require(esm), which TypeScript knows from nodenext on.
  { module: 'nodenext', moduleResolution: 'nodenext', files: { 'esm.mts': esm, 'commonjs.cts': commonJs } },
  { module: 'esnext', moduleResolution: 'bundler', files: { 'bundled.ts': esm } },
];

/** Compiles imports of every subpath in every mode, in a project that has the package, pg and their types. */
export async function resolveTypes(project: string): Promise<void> {
  const specifiers = Object.keys(await readEntryPoints()).map(specifierOf);
  await Promise.all(
    modes.map(async ({ files, ...mode }) => {
      const folder = join(project, mode.moduleResolution);
      await mkdir(folder);
      const compilerOptions = {
        ...mode,
        target: 'es2023',
        strict: true,
        noEmit: true,
        skipLibCheck: true,
        types: ['node'],
      };
      await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: Object.keys(files) }));
      for (const [file, codeOf] of Object.entries(files)) await writeFile(join(folder, file), codeOf(specifiers));
      await run(process.execPath, [tsc, '-p', folder], project, {});
    }),
  );
}

/** Their options have types of the broker's client. */
const typedByClient = ['./nats', './rabbitmq', './redis', './sns', './sqs'];

/** Compiles the declarations themselves, as projects without `skipLibCheck` do. Of subpaths that need no other package. */
export async function checkDeclarations(project: string): Promise<void> {
  const subpaths = (await importableWithPg()).filter((subpath) => !typedByClient.includes(subpath));
  const specifiers = subpaths.map(specifierOf);
  const folder = join(project, 'declarations');
  await mkdir(folder, { recursive: true });
  const compilerOptions = { module: 'nodenext', target: 'es2023', strict: true, noEmit: true, types: ['node'] };
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['all.mts'] }));
  await writeFile(join(folder, 'all.mts'), specifiers.map((specifier) => `import '${specifier}';`).join('\n'));
  await run(process.execPath, [tsc, '-p', folder], project, {});
}

/** Fails to compile when the types of a module are not found, or are `any`. */
const checks = `
type Known<T> = 0 extends 1 & T ? never : keyof T extends never ? never : T;
function known<T>(_module: Known<T>): void {}
`;

function esm(specifiers: readonly string[]): string {
  const imports = specifiers.map((specifier, n) => `import * as module${n} from '${specifier}';`);
  return `${imports.join('\n')}\nimport { createOutbox, fromPg } from 'postcommit';\n${usage(specifiers.length)}`;
}

function commonJs(specifiers: readonly string[]): string {
  const imports = specifiers.map((specifier, n) => `import module${n} = require('${specifier}');`);
  return `${imports.join('\n')}\nconst { createOutbox, fromPg } = module0;\n${usage(specifiers.length)}`;
}

function usage(modules: number): string {
  const known = Array.from({ length: modules }, (_, n) => `known<typeof module${n}>(module${n});`);
  return `${checks}${known.join('\n')}
import type { Pool } from 'pg';
export async function emit(pool: Pool): Promise<string> {
  const outbox = createOutbox({ db: fromPg(pool) });
  // @ts-expect-error There is no such option.
  createOutbox({ db: fromPg(pool), schemas: 'events' });
  // @ts-expect-error This is no transaction.
  await outbox.emit('tx', { type: 'order.created', aggregate: ['order', '1'], payload: null });
  return outbox.transaction(async (tx, emit) => {
    await tx.query('select 1');
    return emit({ type: 'order.created', aggregate: ['order', '1'], payload: null });
  });
}
`;
}
