import { quoteIdentifier } from '../../database/identifier.ts';
import { quantity, size } from '../../format.ts';
import type { IndexFacts } from '../../outbox/examining/examine-indexes.ts';
import type { TableFacts } from '../../outbox/examining/examine-tables.ts';
import type { ExpectedIndex } from './expected-indexes.ts';
import { expectedIndexes } from './expected-indexes.ts';
import type { CheckFinding } from './finding.ts';
import { note, ok, warning } from './finding.ts';

/** Unused indexes below this size cost too little to report. */
const unusedBytesMin = 100 * 1_048_576;

/** Compares the indexes of all tables and partitions with those that the migrations create. */
export function indexFindings(
  schema: string,
  tables: readonly TableFacts[],
  indexes: readonly IndexFacts[],
): CheckFinding[] {
  const found: CheckFinding[] = [];
  for (const table of tables.filter(({ partitioned }) => !partitioned)) {
    const unmatched = indexes.filter((index) => index.table === table.name);
    for (const listed of expectedIndexes) {
      if (listed.table !== (table.partitionOf ?? table.name)) continue;
      const expected = inTable(table.name, listed);
      // Prefer a valid index: an invalid one next to it is left from an interrupted build.
      const same = unmatched.filter(({ definition }) => definition === expected.definition);
      const index = same.find(({ valid }) => valid) ?? same[0];
      if (index === undefined) found.push(missing(schema, table.name, expected));
      else {
        unmatched.splice(unmatched.indexOf(index), 1);
        if (!index.valid)
          found.push(invalid(schema, index, `reindex index concurrently ${named(schema, index.name)};`));
        else if (isUnused(index, expected)) found.push(unused(schema, index, expected));
      }
    }
    for (const index of unmatched) {
      const drop = dropping(schema, index);
      found.push(index.valid ? foreign(index, drop) : invalid(schema, index, drop));
    }
  }
  return found.length > 0 ? found : [ok(`all ${indexes.length} indexes exist and are valid`)];
}

/** The default partition has dead letters of many dropped partitions, so ids are not unique in it. */
function inTable(table: string, expected: ExpectedIndex): ExpectedIndex {
  if (table !== 'outbox_events_default' || expected.definition !== 'unique btree (id)') return expected;
  return { ...expected, definition: 'btree (id)' };
}

function named(schema: string, name: string): string {
  return `${quoteIdentifier(schema)}.${quoteIdentifier(name)}`;
}

function dropping(schema: string, { name, table, constraint }: IndexFacts): string {
  return constraint === null
    ? `drop index concurrently ${named(schema, name)};`
    : `alter table ${named(schema, table)} drop constraint ${quoteIdentifier(constraint)};`;
}

function missing(
  schema: string,
  table: string,
  { definition, missing: severity, consequence }: ExpectedIndex,
): CheckFinding {
  const unique = definition.startsWith('unique ');
  const method = unique ? definition.slice('unique '.length) : definition;
  return {
    severity,
    what: `the index ${definition} on ${table} is missing`,
    consequence,
    fix: `create ${unique ? 'unique ' : ''}index concurrently on ${named(schema, table)} using ${method};`,
  };
}

function invalid(schema: string, index: IndexFacts, fix: string): CheckFinding {
  if (index.building) {
    return note(`the index ${index.name} on ${index.table} is being built`, 'Queries cannot use it yet.');
  }
  return warning(
    `the index ${index.name} on ${index.table} is invalid: its build was interrupted`,
    `Every write to ${quoteIdentifier(schema)}.${index.table} updates it, but no query can use it.`,
    fix,
  );
}

function foreign(index: IndexFacts, fix: string): CheckFinding {
  const what = `the index ${index.name} on ${index.table} was not created by Postcommit (${index.definition}; ${used(index)})`;
  // A claim is a HOT update only while no index covers the columns that it changes.
  const hot = index.table === 'outbox_queue' || index.table === 'outbox_shelf';
  return hot
    ? warning(what, 'Every claim, retry and settlement updates it, which can halve the throughput.', fix)
    : note(what, 'Every write to the table updates it. Keep it only if your own queries need it.', fix);
}

function isUnused({ scans, bytes }: IndexFacts, { missing: severity }: ExpectedIndex): boolean {
  return severity === 'note' && scans === 0 && bytes >= unusedBytesMin;
}

function unused(schema: string, index: IndexFacts, { consequence }: ExpectedIndex): CheckFinding {
  return note(
    `the index ${index.name} on ${index.table} (${size(index.bytes)}) was not used since the statistics were reset`,
    `Every emit updates it. Without it: ${consequence}`,
    `drop index concurrently ${named(schema, index.name)}; -- only if you do not look up events that way`,
  );
}

function used({ scans }: IndexFacts): string {
  return scans === 0 ? 'never used' : `used ${quantity(scans, 'time')}`;
}
