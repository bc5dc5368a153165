import type { AppliedMigration } from '../../outbox/examining/examine-migrations.ts';
import type { CheckFinding } from './finding.ts';
import { critical, ok } from './finding.ts';

/** Compares the applied migrations with those of this package. */
export function migrationFindings(
  known: readonly AppliedMigration[],
  applied: readonly AppliedMigration[],
): CheckFinding[] {
  const at = applied.at(-1)?.version ?? 0;
  const latest = known.at(-1)?.version ?? 0;
  if (applied.length === 0) {
    return [critical('this schema has no outbox', 'Nothing can be emitted or delivered.', 'postcommit migrate')];
  }
  if (at > latest) {
    const what = `the tables have version ${at}, newer than version ${latest} of this package`;
    return [critical(what, 'This package may not work with newer tables.', 'npm install postcommit@latest')];
  }
  const changed = applied.find(({ version, checksum }, i) => {
    const expected = known[i];
    return expected?.version !== version || expected.checksum !== checksum;
  });
  if (changed !== undefined) {
    const what = `the applied migration ${changed.version} (${changed.name}) differs from the one in this package`;
    const consequence = 'The tables may differ from what this package expects, and `postcommit migrate` fails.';
    return [critical(what, consequence, 'install the version of postcommit that applied it')];
  }
  const pending = known.slice(applied.length);
  if (pending.length > 0) {
    const what = `the tables have version ${at}; not applied yet: ${pending.map(({ name }) => name).join(', ')}`;
    return [critical(what, 'Relays and services of this version fail.', 'postcommit migrate')];
  }
  return [ok(`all ${applied.length} migrations are applied and unchanged`)];
}
