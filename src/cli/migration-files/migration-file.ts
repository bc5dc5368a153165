/** What a file contains, and its path below the folder of the tool's migrations. */
export interface MigrationFile {
  path: string;
  text: string;
  /** Whether the path is of a file that the tool keeps up to date, and is written again. */
  replaces?: boolean;
}

export type Language = 'ts' | 'esm' | 'cjs';

export const languages: readonly Language[] = ['ts', 'esm', 'cjs'];

/** What a migration does, in forms for tools with and without a transaction around it. */
export interface ToolMigration {
  /** For a tool that runs it in a transaction together with statements of its own. */
  up: string;
  /** With BEGIN and COMMIT. */
  upAlone: string;
  /** `undefined`: it cannot be undone. */
  down: string | undefined;
}

export interface FileRequest {
  migration: ToolMigration;
  at: Date;
  language: Language;
  /** Whether `.js` is an ES module: `"type": "module"` in package.json. */
  isModule: boolean;
  /** Reads a file of the folder; `undefined` if there is none. */
  read(path: string): string | undefined;
}

/** The time as in 20260203040506, in UTC. */
export function digitsOf(at: Date): string {
  return at.toISOString().replace(/\D/g, '').slice(0, 14);
}

/** SQL as a template literal of JavaScript. */
export function literal(sql: string): string {
  return `\`\n${sql.replace(/[\\`]|\$\{/g, (match) => `\\${match}`)}\``;
}

/** With the suffix under which Node.js reads the file as this language. */
export function named(name: string, { language, isModule }: Pick<FileRequest, 'language' | 'isModule'>): string {
  if (language === 'ts') return `${name}.ts`;
  if (language === 'esm') return `${name}.${isModule ? 'js' : 'mjs'}`;
  return `${name}.${isModule ? 'cjs' : 'js'}`;
}

/** A statement that runs the SQL of `down`, or fails. */
export function downBody(down: string | undefined, run: (sql: string) => string): string {
  return down === undefined ? "throw new Error('This migration cannot be undone.');" : run(literal(down));
}
