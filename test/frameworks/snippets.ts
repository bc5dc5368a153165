import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = fileURLToPath(new URL('../..', import.meta.url));
const pages = join(root, 'docs/frameworks');

/** The snippets of docs/frameworks as files, in a folder for each page: `// server.ts` in the first line names the file. */
export interface Snippets {
  /** By page, e.g. `express`. */
  readonly files: ReadonlyMap<string, readonly string[]>;
  /** The path of a file, relative to the project. */
  path(page: string, file: string): string;
  /** Adds a file that a page takes for granted. */
  add(page: string, file: string, code: string): Promise<void>;
  /** What the compiler says about all of them and the tests beside them; empty if they compile. */
  compile(): Promise<string>;
  remove(): Promise<void>;
}

export async function writeSnippets(): Promise<Snippets> {
  // Below this folder, so that frameworks are found as in a project that has installed them.
  const folder = await mkdtemp(join(import.meta.dirname, 'snippets-'));
  const files = new Map<string, string[]>();
  const path = (page: string, file: string) => join(folder, page, file);
  const write = async (page: string, file: string, code: string) => {
    await mkdir(dirname(path(page, file)), { recursive: true });
    await writeFile(path(page, file), code);
  };
  for (const name of (await readdir(pages)).filter((each) => each.endsWith('.md'))) {
    const page = basename(name, '.md');
    const text = await readFile(join(pages, name), 'utf8');
    for (const [, code = ''] of text.matchAll(/```ts\n(.*?)```/gs)) {
      const [, file] = /^\/\/ (\S+\.ts)\n/.exec(code) ?? [];
      if (file === undefined) throw new Error(`${name}: a snippet does not begin with its file, e.g. // server.ts`);
      await write(page, file, code);
      files.set(page, [...(files.get(page) ?? []), file]);
    }
  }
  return {
    files,
    path: (page, file) => relative(root, path(page, file)),
    add: write,
    compile: () => compile(folder),
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

async function compile(folder: string): Promise<string> {
  const config = {
    extends: join(import.meta.dirname, 'tsconfig.json'),
    // As in a new project of a framework; Next.js asks for a bundler's resolution.
    compilerOptions: {
      module: 'esnext',
      moduleResolution: 'bundler',
      lib: ['es2023', 'es2024.string', 'dom', 'dom.iterable', 'esnext.disposable'],
    },
    // With the tests themselves, which the project's own tsconfig leaves out.
    include: ['**/*.ts', '../*.ts', '../../support/global-setup.ts'],
  };
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config));
  const tsc = join(root, 'node_modules/.bin/tsc');
  return promisify(execFile)(tsc, ['-p', folder], { cwd: root }).then(
    () => '',
    (error: { stdout: string }) => error.stdout,
  );
}
