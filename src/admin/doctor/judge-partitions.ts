import { quoteIdentifier } from '../../database/identifier.ts';
import { duration, quantity, size } from '../../format.ts';
import type { Partitioning } from '../../outbox/maintaining/list-partitions.ts';
import type { Judgement } from './finding.ts';
import { note, ok, warning } from './finding.ts';

/** A log of one table that is larger than this takes long to prune row by row. */
const unpartitionedBytesMax = 20 * 1_073_741_824;

const dayMs = 86_400_000;
/** Twice the unit: one that has just ended is rotated with the leader's next turn. */
const overdueMs = { day: 2 * dayMs, month: 62 * dayMs };

export function judgePartitions(schema: string, partitioning: Partitioning, nowMs: number): Judgement[] {
  const { unit, partitions, bytes } = partitioning;
  if (unit === 'none') {
    if (bytes < unpartitionedBytesMax) return [ok(`not partitioned; log and record take ${size(bytes)}`)];
    const what = `the log is one table, and takes ${size(bytes)} with its record`;
    const consequence = 'Retention deletes row by row and leaves dead rows, instead of dropping a day in milliseconds.';
    return [note(what, consequence, 'postcommit partitions convert --by day')];
  }
  const found = [
    ...judgeSpares(partitions),
    ...judgeRotation(partitions, unit, nowMs),
    ...judgeStrays(schema, partitioning),
  ];
  const held = partitions.filter(({ state }) => state === 'open' || state === 'closed').length;
  return found.length > 0 ? found : [ok(`by ${unit}: ${quantity(held, 'partition')} and spares ahead, ${size(bytes)}`)];
}

function judgeSpares(partitions: Partitioning['partitions']): Judgement[] {
  const spares = partitions.filter(({ state }) => state === 'spare').length;
  if (spares >= 2) return [];
  const what = `${spares === 0 ? 'no spare partition is' : 'only one spare partition is'} ahead`;
  const consequence = 'The next one cannot be opened: events go on into the current one, and retention waits for it.';
  return [(spares === 0 ? warning : note)(what, consequence, 'postcommit partitions rotate')];
}

function judgeRotation(partitions: Partitioning['partitions'], unit: 'day' | 'month', nowMs: number): Judgement[] {
  const open = partitions.find(({ state }) => state === 'open');
  if (open?.openedAt === undefined) {
    const consequence = 'New events go into the default partition, which retention prunes row by row.';
    return [warning('the current partition is not there', consequence, 'postcommit partitions rotate')];
  }
  const ageMs = nowMs - open.openedAt.getTime();
  if (ageMs <= overdueMs[unit] || open.events === 0) return [];
  const what = `partition ${open.number} is for a ${unit} and has been open for ${duration(ageMs)}`;
  const consequence = 'No relay rotates: what is in it stays until it is closed and its time is over.';
  return [warning(what, consequence, 'postcommit partitions rotate')];
}

/** Events outside of the partitions that are made for them. */
function judgeStrays(schema: string, { partitions, default: rest }: Partitioning): Judgement[] {
  const found = partitions
    .filter(({ state }) => state === 'detached')
    .map(({ number }) =>
      warning(
        `partition ${number} is detached: its tables are not, or not both, part of the log any more`,
        'Its events are neither found nor delivered.',
        attach(schema, number),
      ),
    );
  if (rest !== undefined && rest.events !== 0) {
    const amount = rest.events === null ? 'events' : `about ${quantity(rest.events, 'event')}`;
    const what = `the default partition holds ${amount} (${size(rest.bytes)})`;
    const consequence =
      'Either dead letters of partitions that were dropped, or events that had none; they are pruned row by row.';
    found.push(note(what, consequence, 'postcommit partitions'));
  }
  return found;
}

/** With text: a number of partitions times their room is past what a JavaScript number holds exactly. */
function attach(schema: string, number: number): string {
  const s = quoteIdentifier(schema);
  const room = (n: number) => (n === 0 ? '0' : `${n}000000000000`);
  const bounds = `for values from (${room(number)}) to (${room(number + 1)})`;
  return `alter table ${s}.outbox_events attach partition ${s}.outbox_events_p${number} ${bounds}; -- and outbox_deliveries alike, if it is detached too`;
}
