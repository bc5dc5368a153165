import type { AppliedMigration } from '../../outbox/examining/examine-migrations.ts';
import type { Judgement } from './finding.ts';
import { critical, ok } from './finding.ts';

/** Compares the books of the database with what this package brings along. */
export function judgeMigrations(known: readonly AppliedMigration[], applied: readonly AppliedMigration[]): Judgement[] {
  const at = applied.at(-1)?.version ?? 0;
  const latest = known.at(-1)?.version ?? 0;
  if (applied.length === 0) {
    return [
      critical('there is no outbox in this schema', 'Nothing can be emitted or delivered.', 'postcommit migrate'),
    ];
  }
  if (at > latest) {
    const what = `the tables are at version ${at}, this package knows ${latest}`;
    return [critical(what, 'What this package does to newer tables is not known.', 'npm install postcommit@latest')];
  }
  const changed = applied.find(({ version, checksum }, i) => {
    const expected = known[i];
    return expected?.version !== version || expected.checksum !== checksum;
  });
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
  return [ok(`all ${applied.length} migrations are applied, unchanged`)];
}
