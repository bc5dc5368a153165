import { quoteIdentifier } from '../../database/identifier.ts';
import { duration, quantity, size } from '../../format.ts';
import type { IndexFacts } from '../../outbox/examining/examine-indexes.ts';
import type { TableFacts } from '../../outbox/examining/examine-tables.ts';
import type { CheckFinding } from './finding.ts';
import { critical, note, ok, severityOver, warning } from './finding.ts';
import type { DoctorLimits } from './limits.ts';

/** Tables in which every delivery inserts and deletes rows. */
const turnover = ['outbox_queue', 'outbox_shelf'];

/** As the migrations set them: vacuum after a fixed number of dead rows, without cost delay. */
const vacuumOptions: Readonly<Record<string, string>> = {
  autovacuum_vacuum_scale_factor: '0',
  autovacuum_vacuum_threshold: '5000',
  autovacuum_vacuum_insert_scale_factor: '0',
  autovacuum_vacuum_insert_threshold: '100000',
  autovacuum_analyze_scale_factor: '0',
  autovacuum_analyze_threshold: '50000',
  autovacuum_vacuum_cost_delay: '0',
};

const staleRows = 200_000;
const staleMs = 3_600_000;

export function autovacuumFindings(schema: string, tables: readonly TableFacts[]): CheckFinding[] {
  const s = quoteIdentifier(schema);
  const found: CheckFinding[] = [];
  for (const table of tables.filter(({ partitioned }) => !partitioned)) {
    const options = new Map(table.options.map((option) => option.split('=', 2) as [string, string]));
    const busy = turnover.includes(table.name);
    if (/^(false|off|no|0)$/i.test(options.get('autovacuum_enabled') ?? '')) {
      found.push(
        (busy ? critical : warning)(
          `autovacuum is disabled for ${table.name}`,
          busy
            ? 'Dead rows of delivered events are never removed, so claims become slower and slower.'
            : 'Its dead rows are never removed and its statistics never updated.',
          `alter table ${s}.${quoteIdentifier(table.name)} reset (autovacuum_enabled);`,
        ),
      );
    }
    const other = busy ? Object.entries(vacuumOptions).filter(([name, value]) => options.get(name) !== value) : [];
    if (other.length > 0) {
      found.push(
        warning(
          `the autovacuum settings of ${table.name} differ from those of the migrations: ${other.map(([name]) => `${name} is ${options.get(name) ?? 'not set'}`).join(', ')}`,
          'Every delivery leaves a dead row. With the default settings, vacuum runs too rarely and the table fills with dead rows.',
          `alter table ${s}.${table.name} set (${other.map(([name, value]) => `${name} = ${value}`).join(', ')});`,
        ),
      );
    }
    if (table.changedSinceAnalyze > staleRows && (table.analyzedMsAgo ?? Number.POSITIVE_INFINITY) > staleMs) {
      const last = table.analyzedMsAgo === null ? 'never analyzed' : `analyzed ${duration(table.analyzedMsAgo)} ago`;
      const what = `the statistics of ${table.name} are outdated: ${last}, ${quantity(table.changedSinceAnalyze, 'row')} changed since`;
      found.push(
        note(what, 'The query planner may choose slow plans.', `analyze ${s}.${quoteIdentifier(table.name)};`),
      );
    }
  }
  return found.length > 0 ? found : [ok(`the autovacuum settings are those of the migrations; ${lastVacuum(tables)}`)];
}

function lastVacuum(tables: readonly TableFacts[]): string {
  const queue = tables.find(({ name }) => name === 'outbox_queue');
  if (queue === undefined || queue.vacuumedMsAgo === null) return 'the queue was not vacuumed yet';
  return `the queue was vacuumed ${duration(queue.vacuumedMsAgo)} ago`;
}

/** A queue row with free space on its page, and an index entry. Generous estimates, so that only large bloat is reported. */
const rowBytes = 250;
const entryBytes = 60;
const bloatBytesMin = 64 * 1_048_576;

export function bloatFindings(
  schema: string,
  { tables, indexes }: { tables: readonly TableFacts[]; indexes: readonly IndexFacts[] },
  limits: Pick<DoctorLimits, 'deadRowsMax'>,
): CheckFinding[] {
  const s = quoteIdentifier(schema);
  const found: CheckFinding[] = [];
  const isBloated = (bytes: number, usefulBytes: number) => bytes > bloatBytesMin && bytes > 4 * usefulBytes;
  for (const { name, deadRows, liveRows, bytes } of tables.filter((table) => turnover.includes(table.name))) {
    const severity = severityOver(deadRows, limits.deadRowsMax);
    if (severity !== 'ok') {
      found.push({
        severity,
        what: `${name} has ${quantity(deadRows, 'dead row')} for ${quantity(liveRows, 'live one')}`,
        consequence: 'Claims and settlements read dead rows. Delivery is slow until vacuum removes them.',
        fix: `vacuum (analyze) ${s}.${name}; -- has no effect while a session holds an old snapshot: npx postcommit doctor --only snapshots`,
      });
    } else if (isBloated(bytes, liveRows * rowBytes)) {
      found.push(
        note(
          `${name} takes ${size(bytes)} for ${quantity(liveRows, 'row')}`,
          'A past backlog left free space. The next backlog reuses it; until then, scans of the whole table are slow.',
          `vacuum full ${s}.${name}; -- emitters and relays wait while it runs, which is short when there are few rows`,
        ),
      );
    }
    for (const index of indexes.filter(({ table }) => table === name)) {
      if (!isBloated(index.bytes, index.liveRows * entryBytes)) continue;
      found.push(
        note(
          `the index ${index.name} takes ${size(index.bytes)} for ${quantity(index.liveRows, 'row')}`,
          'Index scans read more pages than necessary.',
          `reindex index concurrently ${s}.${quoteIdentifier(index.name)};`,
        ),
      );
    }
  }
  const queue = tables.find(({ name }) => name === 'outbox_queue');
  return found.length > 0 || queue === undefined
    ? found
    : [
        ok(
          `the queue takes ${size(queue.bytes)}: ${quantity(queue.liveRows, 'live row')}, ${quantity(queue.deadRows, 'dead one')}`,
        ),
      ];
}
