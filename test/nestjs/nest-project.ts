import { execFile, spawn } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { copyPackage } from '../../scripts/built-package.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const tsc = join(root, 'node_modules/typescript/bin/tsc');

export interface NestVariant {
  version: 10 | 11 | 12;
  /** What the application is compiled to. Nest 10 and 11 are CommonJS packages, Nest 12 is ESM. */
  format: 'commonjs' | 'module';
}

/** What a scenario wrote: one JSON object a line. */
export interface ScenarioResult {
  code: number | null;
  signal: NodeJS.Signals | null;
  // biome-ignore lint/suspicious/noExplicitAny: each scenario has its own entries.
  journal: Record<string, any>[];
  stderr: string;
}

/** The package as it is published, without its docs. Returns its folder. */
export async function buildPackage(): Promise<string> {
  const folder = join(await mkdtemp(join(tmpdir(), 'postcommit-nestjs-')), 'postcommit');
  copyPackage(folder);
  return folder;
}

/**
 * An application of test/nestjs/app, compiled as a Nest project is, against the types of its version of Nest and of the built package.
 * Its folder is inside of test/nestjs/nest<version>, where that version is installed.
 */
export class NestProject {
  readonly #folder: string;
  readonly #home: string;

  constructor({ version, format }: NestVariant) {
    this.#home = join(root, `test/nestjs/nest${version}`);
    this.#folder = join(this.#home, 'dist', format);
    this.#format = format;
  }

  readonly #format: NestVariant['format'];

  async make(packageFolder: string): Promise<void> {
    for (const copy of ['postcommit', 'postcommit-again']) {
      await rm(join(this.#home, 'node_modules', copy), { recursive: true, force: true });
      await cp(packageFolder, join(this.#home, 'node_modules', copy), { recursive: true });
    }
    await rm(this.#folder, { recursive: true, force: true });
    await mkdir(this.#folder, { recursive: true });
    await cp(join(root, 'test/nestjs/app'), join(this.#folder, 'src'), { recursive: true });
    await writeFile(join(this.#folder, 'package.json'), JSON.stringify({ type: this.#format }));
    await writePageExamples(join(this.#folder, 'src'));
    await cp(join(root, `test/nestjs/prisma/${this.#format}/generated`), join(this.#folder, 'src/generated'), {
      recursive: true,
    });
    await rm(join(this.#home, 'node_modules/@prisma'), { force: true });
    await symlink(
      join(root, 'test/adapters/node_modules/@prisma'),
      join(this.#home, 'node_modules/@prisma'),
      'junction',
    );
    const compilerOptions = {
      ...{ target: 'es2023', module: 'nodenext', moduleResolution: 'nodenext', strict: true, types: ['node'] },
      ...{ experimentalDecorators: true, emitDecoratorMetadata: true, skipLibCheck: true },
      ...{ useDefineForClassFields: false, esModuleInterop: true, rootDir: 'src', outDir: 'out' },
    };
    await writeFile(join(this.#folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['src'] }));
    await execute(process.execPath, [tsc, '-p', '.'], this.#folder);
    await this.#compileStandard(compilerOptions);
  }

  /** One file of the application once more, with standard decorators. */
  async #compileStandard(others: object): Promise<void> {
    const compilerOptions = {
      ...others,
      ...{ experimentalDecorators: false, emitDecoratorMetadata: false, outDir: 'out/standard' },
      ...{ lib: ['es2023', 'esnext.decorators'] },
    };
    const config = { compilerOptions, files: ['src/wrapped-handlers.ts'] };
    await writeFile(join(this.#folder, 'tsconfig.standard.json'), JSON.stringify(config));
    await execute(process.execPath, [tsc, '-p', 'tsconfig.standard.json'], this.#folder);
  }

  /** Compiles src/frameworks/nestjs against the types of this version of Nest. Fails with the compiler's errors. */
  async checkSource(): Promise<void> {
    const folder = join(this.#home, 'dist', 'source');
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    await cp(join(root, 'src'), join(folder, 'src'), { recursive: true });
    // The declarations that stand in for Nest where it is not installed.
    await rm(join(folder, 'src/frameworks/nestjs/nest.d.ts'));
    await writeFile(join(folder, 'package.json'), JSON.stringify({ type: 'module' }));
    const config = { extends: join(root, 'tsconfig.json'), files: ['src/frameworks/nestjs/index.ts'], include: [] };
    await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config));
    await execute(process.execPath, [tsc, '-p', '.'], folder);
  }

  run(scenario: string, env: Record<string, string>): Promise<ScenarioResult> {
    const secondCopy = new URL(`file://${this.#home}/node_modules/postcommit-again/dist/frameworks/nestjs/index.js`);
    const child = spawn(process.execPath, ['out/main.js', scenario], {
      cwd: this.#folder,
      env: { ...process.env, NO_COLOR: '1', SECOND_COPY: secondCopy.href, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 50_000,
      killSignal: 'SIGKILL',
    });
    const output = { stdout: '', stderr: '' };
    for (const stream of ['stdout', 'stderr'] as const) {
      child[stream].setEncoding('utf8').on('data', (text: string) => {
        output[stream] += text;
      });
    }
    return new Promise((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code, signal) => {
        const lines = output.stdout.split('\n').filter((line) => line.startsWith('{'));
        resolve({ code, signal, journal: lines.map((line) => JSON.parse(line)), stderr: output.stderr });
      });
    });
  }
}

/** The examples of the pages about Nest, beside the application, so that they are compiled with it. */
async function writePageExamples(folder: string): Promise<void> {
  for (const page of ['nestjs', 'from-nestarc-outbox', 'from-nestjs-outbox']) {
    const text = await readFile(join(root, `docs/frameworks/${page}.md`), 'utf8');
    for (const [index, [, code = '']] of [...text.matchAll(/```typescript\n(.*?)```/gs)].entries()) {
      // A CommonJS module has no await of its own.
      const wrapped = /^(?:const .* = )?await /m.test(code) ? wrapStatements(code) : code;
      await writeFile(join(folder, `${page}-${index}.ts`), wrapped);
    }
  }
}

function wrapStatements(code: string): string {
  const imports = code.match(/^import .*$/gm) ?? [];
  return `${imports.join('\n')}\nexport async function example() {\n${code.replace(/^import .*$/gm, '')}\n}\n`;
}

async function execute(command: string, args: string[], cwd: string): Promise<void> {
  try {
    await promisify(execFile)(command, args, { cwd, maxBuffer: 16 * 1024 * 1024 });
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    throw new Error(`${args.join(' ')} failed in ${cwd}\n${stdout}${stderr}`, { cause: error });
  }
}
