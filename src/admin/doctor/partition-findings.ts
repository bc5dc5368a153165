import { quoteIdentifier } from '../../database/identifier.ts';
import { duration, quantity, size } from '../../format.ts';
import type { Partitioning } from '../../outbox/maintaining/list-partitions.ts';
import type { CheckFinding } from './finding.ts';
import { note, ok, warning } from './finding.ts';

/** Deleting row by row from a log larger than this is slow. */
const unpartitionedBytesMax = 20 * 1_073_741_824;

const dayMs = 86_400_000;
/** Twice the unit: a partition whose time is over is rotated when maintenance runs next. */
const overdueMs = { day: 2 * dayMs, month: 62 * dayMs };

export function partitionFindings(schema: string, partitioning: Partitioning, nowMs: number): CheckFinding[] {
  const { unit, partitions, bytes } = partitioning;
  if (unit === 'none') {
    if (bytes < unpartitionedBytesMax)
      return [ok(`not partitioned; the log and the delivery record take ${size(bytes)}`)];
    const what = `the log is one table of ${size(bytes)} with the delivery record`;
    const consequence =
      'Retention deletes row by row and leaves dead rows. With partitions it drops a whole day in milliseconds.';
    return [note(what, consequence, 'npx postcommit partitions convert --by day')];
  }
  const found = [
    ...spareFindings(partitions),
    ...rotationFindings(partitions, unit, nowMs),
    ...strayFindings(schema, partitioning),
  ];
  const held = partitions.filter(({ state }) => state === 'open' || state === 'closed').length;
  return found.length > 0 ? found : [ok(`by ${unit}: ${quantity(held, 'partition')} and spare ones, ${size(bytes)}`)];
}

function spareFindings(partitions: Partitioning['partitions']): CheckFinding[] {
  const spares = partitions.filter(({ state }) => state === 'spare').length;
  if (spares >= 2) return [];
  const what = spares === 0 ? 'there is no spare partition' : 'there is only one spare partition';
  const consequence =
    'Without a spare partition, events keep going into the current one, and retention cannot drop it.';
  return [(spares === 0 ? warning : note)(what, consequence, 'npx postcommit partitions rotate')];
}

function rotationFindings(
  partitions: Partitioning['partitions'],
  unit: 'day' | 'month',
  nowMs: number,
): CheckFinding[] {
  const open = partitions.find(({ state }) => state === 'open');
  if (open?.openedAt === undefined) {
    const consequence = 'New events go into the default partition, from which retention deletes row by row.';
    return [warning('the current partition is missing', consequence, 'npx postcommit partitions rotate')];
  }
  const ageMs = nowMs - open.openedAt.getTime();
  if (ageMs <= overdueMs[unit] || open.events === 0) return [];
  const what = `partition ${open.number} covers a ${unit}, but has been open for ${duration(ageMs)}`;
  const consequence = 'No relay rotates partitions. Retention cannot drop a partition before it is closed.';
  return [warning(what, consequence, 'npx postcommit partitions rotate')];
}

/** Events in detached partitions or in the default partition. */
function strayFindings(schema: string, { partitions, default: rest }: Partitioning): CheckFinding[] {
  const found = partitions
    .filter(({ state }) => state === 'detached')
    .map(({ number }) =>
      warning(
        `partition ${number} is detached: its log table or its delivery table is no longer attached`,
        'Its events are not found and not delivered.',
        attach(schema, number),
      ),
    );
  if (rest !== undefined && rest.events !== 0) {
    const amount = rest.events === null ? 'events' : `about ${quantity(rest.events, 'event')}`;
    const what = `the default partition holds ${amount} (${size(rest.bytes)})`;
    const consequence =
      'They are dead letters of dropped partitions, or events for which no partition existed. Retention deletes them row by row.';
    found.push(note(what, consequence, 'npx postcommit partitions'));
  }
  return found;
}

/** Builds the bounds as text: they exceed what a JavaScript number represents exactly. */
function attach(schema: string, number: number): string {
  const s = quoteIdentifier(schema);
  const room = (n: number) => (n === 0 ? '0' : `${n}000000000000`);
  const bounds = `for values from (${room(number)}) to (${room(number + 1)})`;
  return `alter table ${s}.outbox_events attach partition ${s}.outbox_events_p${number} ${bounds}; -- and likewise for outbox_deliveries, if it is detached too`;
}
