import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { PostcommitError } from '../../errors.ts';
import type { Language, ToolMigration } from './migration-file.ts';
import type { MigrationTool, ToolName } from './tools.ts';
import { migrationTools } from './tools.ts';

export interface WriteOptions {
  /** The project, whose package.json and tsconfig.json count. */
  cwd: string;
  /** The folder of the tool's migrations. Default: the one that the tool has by default. */
  output?: string | undefined;
  language?: Language | undefined;
}

/** Writes a migration as the tool reads it, and returns the paths of the files. Nothing is overwritten. */
export function writeMigrationFiles(
  tool: ToolName,
  migration: ToolMigration,
  { cwd, output, language }: WriteOptions,
): string[] {
  const chosen: MigrationTool = migrationTools[tool];
  const folder = resolve(cwd, output ?? chosen.folder);
  const isModule = typeOf(cwd) === 'module';
  const inFolder = (path: string) => join(folder, path);
  const files = chosen.files({
    migration,
    at: new Date(),
    language: language ?? chosen.language ?? languageOf(cwd, isModule),
    isModule,
    read: (path) => (existsSync(inFolder(path)) ? readFileSync(inFolder(path), 'utf8') : undefined),
  });
  const existing = files.find(({ path, replaces }) => !replaces && existsSync(inFolder(path)));
  if (existing) throw new PostcommitError('POSTCOMMIT_E_USAGE', `${inFolder(existing.path)} already exists.`);
  for (const { path, text, replaces } of files) {
    mkdirSync(dirname(inFolder(path)), { recursive: true });
    writeFileSync(inFolder(path), text, { flag: replaces ? 'w' : 'wx' });
  }
  return files.map(({ path }) => inFolder(path));
}

function languageOf(cwd: string, isModule: boolean): Language {
  if (existsSync(join(cwd, 'tsconfig.json'))) return 'ts';
  return isModule ? 'esm' : 'cjs';
}

/** `type` of the nearest package.json, as Node.js looks for it. */
function typeOf(folder: string): unknown {
  const file = join(folder, 'package.json');
  if (existsSync(file)) {
    try {
      return (JSON.parse(readFileSync(file, 'utf8')) as { type?: unknown }).type;
    } catch {
      return undefined;
    }
  }
  const parent = dirname(folder);
  return parent === folder ? undefined : typeOf(parent);
}
