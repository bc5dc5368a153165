import type { AppliedRoutine, Routine } from '../../database/migrations.ts';
import { findOutdated } from '../../database/migrations.ts';
import type { AppliedMigration } from '../../outbox/examining/examine-migrations.ts';
import type { Judgement } from './finding.ts';
import { critical, ok } from './finding.ts';

/** Compares what the database has recorded as applied with the migrations and routines of this package. */
export function judgeMigrations(
  { migrations: known, routines }: { migrations: readonly AppliedMigration[]; routines: readonly Routine[] },
  {
    migrations: applied,
    routines: appliedRoutines,
  }: {
    migrations: readonly AppliedMigration[];
    routines: readonly AppliedRoutine[];
  },
): Judgement[] {
  const at = applied.at(-1)?.version ?? 0;
  const latest = known.at(-1)?.version ?? 0;
  if (applied.length === 0) {
    return [
      critical('there is no outbox in this schema', 'Nothing can be emitted or delivered.', 'postcommit migrate'),
    ];
  }
  const changed = applied.slice(0, known.length).find(({ version, checksum }, i) => {
    const expected = known[i];
    return expected?.version !== version || expected.checksum !== checksum;
  });
  if (changed?.version === 1) {
    const what = 'the outbox was created by a development version, from before the first release';
    const consequence = 'This package can neither use nor upgrade it.';
    return [critical(what, consequence, 'drop the schema and run postcommit migrate, or use another schema')];
  }
  if (changed === undefined && at > latest) {
    const what = `the tables are at version ${at}, this package knows ${latest}`;
    return [critical(what, 'What this package does to newer tables is not known.', 'npm install postcommit@latest')];
  }
  if (changed !== undefined) {
    const what = `migration ${changed.version} (${changed.name}) is not the one of this package`;
    const consequence = 'The tables may differ from what this package expects, and it refuses to migrate.';
    return [critical(what, consequence, 'install the version of postcommit that applied it')];
  }
  const pending = known.slice(applied.length);
  if (pending.length > 0) {
    const what = `the tables are at version ${at}, not applied: ${pending.map(({ name }) => name).join(', ')}`;
    return [critical(what, 'Relays and services of this version fail.', 'postcommit migrate')];
  }
  const outdated = findOutdated(routines, appliedRoutines).map(({ name }) => name);
  if (outdated.length > 0) {
    const what = `functions are not those of this package: ${outdated.join(', ')}`;
    return [critical(what, 'Relays and services of this version may fail.', 'postcommit migrate')];
  }
  return [ok(`version ${at}: all migrations and ${routines.length} routines are applied, unchanged`)];
}
