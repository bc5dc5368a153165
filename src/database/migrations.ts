import { createHash } from 'node:crypto';
import { PostcommitError } from '../errors.ts';
import { packageVersion } from '../package-version.ts';
import { sqlFiles } from './sql-files.ts';

/** An SQL file of the package that `migrate()` applies. */
export interface SqlScript {
  /** Of a migration, the file's name without `.sql`; of a routine, the function's name. */
  name: string;
  /** The file's text, schema not yet written in. */
  source: string;
  checksum: string;
  /** The routines that must exist before this file is applied, from its line `-- requires: a, b`. */
  requires: readonly string[];
}

/** A numbered file: tables, constraints, indexes, data. Applied once, and never changed after its release. */
export interface Migration extends SqlScript {
  version: number;
}

/** A function or procedure, with all of its overloads. Applied again whenever it changes. */
export interface Routine extends SqlScript {
  version?: undefined;
}

/** A migration as recorded in the database. */
export interface AppliedMigration {
  version: number;
  name: string;
  checksum: string;
}

/** A routine as recorded in the database. */
export interface AppliedRoutine {
  name: string;
  checksum: string;
  /** The version of the package that applied it. */
  packageVersion: string;
}

/** The migrations of this package, oldest first. */
export function readMigrations(): Migration[] {
  return readFiles(/^(\d{4}_.+)\.sql$/).map((script) => ({ ...script, version: Number(script.name.slice(0, 4)) }));
}

/** The routines of this package, by name. */
export function readRoutines(): Routine[] {
  return readFiles(/^routines\/(.+)\.sql$/);
}

/** Whether a migration or a routine is part of an inbox without an outbox. */
export function isOfInbox({ name }: Pick<SqlScript, 'name'>): boolean {
  return /^\d{4}_inbox|^record_processed$/.test(name);
}

/** Everything that `migrate()` applies, or only the inbox. */
export function readScripts(inboxOnly = false): { migrations: Migration[]; routines: Routine[] } {
  const [migrations, routines] = [readMigrations(), readRoutines()];
  if (!inboxOnly) return { migrations, routines };
  return { migrations: migrations.filter(isOfInbox), routines: routines.filter(isOfInbox) };
}

function readFiles(pattern: RegExp): Omit<SqlScript, 'version'>[] {
  return Object.entries(sqlFiles()).flatMap(([path, source]) => {
    const name = pattern.exec(path)?.[1];
    if (name === undefined) return [];
    const requires = /^-- requires: (.+)$/m.exec(source)?.[1]?.split(', ') ?? [];
    return [{ name, source, checksum: createHash('sha256').update(source).digest('hex'), requires }];
  });
}

/**
 * All files in the order in which they are applied: each migration after the routines that it requires, then the other
 * routines, each after those that it requires.
 */
export function inOrder(migrations: readonly Migration[], routines: readonly Routine[]): (Migration | Routine)[] {
  const byName = new Map(routines.map((routine) => [routine.name, routine]));
  const ordered = new Set<Migration | Routine>();
  const add = (script: Migration | Routine, requiredBy: readonly string[]) => {
    if (requiredBy.includes(script.name)) throw new Error(`routines require each other: ${requiredBy.join(', ')}`);
    if (ordered.has(script)) return;
    for (const name of script.requires) {
      const required = byName.get(name);
      if (required === undefined) throw new Error(`${script.name}.sql requires ${name}, which is not in routines/`);
      add(required, [...requiredBy, script.name]);
    }
    ordered.add(script);
  };
  for (const script of [...migrations, ...routines]) add(script, []);
  return [...ordered];
}

/**
 * Fails unless each applied migration is one of these, unchanged. They need not be the first ones: an inbox without an outbox has only
 * the migrations of the inbox.
 */
export function checkHistory(
  migrations: readonly Migration[],
  applied: readonly Pick<AppliedMigration, 'version' | 'checksum'>[],
): void {
  for (const row of applied) {
    const migration = migrations.find(({ version }) => version === row.version);
    if (migration === undefined) {
      throw new PostcommitError(
        'POSTCOMMIT_E_MIGRATION_NEWER',
        `The database is at ${applied.at(-1)?.version}, this package knows ${migrations.at(-1)?.version ?? 0}.`,
      );
    }
    if (migration.checksum === row.checksum) continue;
    // The first migration does not change once it is released.
    if (row.version === 1) throw new PostcommitError('POSTCOMMIT_E_MIGRATION_UNRELEASED');
    throw new PostcommitError('POSTCOMMIT_E_MIGRATION_CHANGED', `It is number ${row.version}.`);
  }
}

/**
 * The routines that are missing or different in the database. Routines applied by a newer package count as current: an older
 * one that starts during a deployment must not revert them, and can call them, because a routine keeps its name only while
 * its signature stays.
 */
export function findOutdated(routines: readonly Routine[], applied: readonly AppliedRoutine[]): Routine[] {
  const own = packageVersion();
  const found = new Map(applied.map((routine) => [routine.name, routine]));
  return routines.filter(({ name, checksum }) => {
    const there = found.get(name);
    return there === undefined || (there.checksum !== checksum && !isNewer(there.packageVersion, own));
  });
}

/** Compares major, minor and patch. */
function isNewer(version: string, own: string): boolean {
  const [a, b] = [version, own].map((text) => (text.match(/\d+/g) ?? []).slice(0, 3).map(Number)) as [
    number[],
    number[],
  ];
  for (let i = 0; i < 3; i++) if ((a[i] ?? 0) !== (b[i] ?? 0)) return (a[i] ?? 0) > (b[i] ?? 0);
  return false;
}
