import type { AppliedMigration, AppliedRoutine, Routine } from '../../database/migrations.ts';
import { findOutdated, isOfInbox } from '../../database/migrations.ts';
import type { CheckFinding } from './finding.ts';
import { critical, ok } from './finding.ts';

/** Compares what the database has recorded as applied with the migrations and routines of this package. */
export function migrationFindings(
  { migrations: known, routines }: { migrations: readonly AppliedMigration[]; routines: readonly Routine[] },
  {
    migrations: applied,
    routines: appliedRoutines,
  }: {
    migrations: readonly AppliedMigration[];
    routines: readonly AppliedRoutine[];
  },
): CheckFinding[] {
  const at = applied.at(-1)?.version ?? 0;
  const latest = known.at(-1)?.version ?? 0;
  if (applied.length === 0) {
    return [critical('this schema has no outbox', 'Nothing can be emitted or delivered.', 'npx postcommit migrate')];
  }
  const changed = applied.find(({ version, checksum }) =>
    known.some((migration) => migration.version === version && migration.checksum !== checksum),
  );
  if (changed?.version === 1) {
    const what = 'the outbox was created by a development version, from before the first release';
    const consequence = 'This package can neither use nor upgrade it.';
    return [critical(what, consequence, 'drop the schema and run `npx postcommit migrate`, or use another schema')];
  }
  if (changed === undefined && at > latest) {
    const what = `the tables have version ${at}, newer than version ${latest} of this package`;
    return [critical(what, 'This package may not work with newer tables.', 'npm install postcommit@latest')];
  }
  if (changed !== undefined) {
    const what = `the applied migration ${changed.version} (${changed.name}) differs from the one in this package`;
    const consequence = 'The tables may differ from what this package expects, and `postcommit migrate` fails.';
    return [critical(what, consequence, 'install the version of postcommit that applied it')];
  }
  const inboxOnly = applied.every(isOfInbox);
  const expected = inboxOnly ? known.filter(isOfInbox) : known;
  const pending = expected.filter(({ version }) => !applied.some((row) => row.version === version));
  if (pending.length > 0) {
    const what = `the tables have version ${at}; not applied yet: ${pending.map(({ name }) => name).join(', ')}`;
    return [critical(what, 'Relays and services of this version fail.', 'npx postcommit migrate')];
  }
  const needed = inboxOnly ? routines.filter(isOfInbox) : routines;
  const outdated = findOutdated(needed, appliedRoutines).map(({ name }) => name);
  if (outdated.length > 0) {
    const what = `functions differ from those of this package: ${outdated.join(', ')}`;
    return [critical(what, 'Relays and services of this version may fail.', 'npx postcommit migrate')];
  }
  if (inboxOnly) return [ok(`version ${at}: an inbox without an outbox, up to date`)];
  return [ok(`version ${at}: all migrations and ${routines.length} routines are applied, unchanged`)];
}
