import { quoteLiteral } from '../../database/identifier.ts';
import { duration, quantity, size } from '../../format.ts';
import type { SlotFacts } from '../../outbox/examining/examine-slots.ts';
import type { SnapshotFacts } from '../../outbox/examining/examine-snapshots.ts';
import type { CheckFinding } from './finding.ts';
import { note, ok, severityOver, warning } from './finding.ts';
import { commandToEnd, describeHolder } from './holder-description.ts';
import type { DoctorLimits } from './limits.ts';

/** The age of a slot is known in transactions only. This is about one busy hour. */
const slotXidsMax = 1_000_000;

export function snapshotFindings(
  { holders, hidden }: SnapshotFacts,
  limits: Pick<DoctorLimits, 'snapshotMsMax'>,
  currentRole: string,
): CheckFinding[] {
  const found: CheckFinding[] = [];
  for (const holder of holders) {
    const severity =
      holder.ageMs === undefined
        ? severityOver(holder.xids, slotXidsMax)
        : severityOver(holder.ageMs, limits.snapshotMsMax);
    if (severity === 'ok') continue;
    found.push({
      severity,
      what: `${describeHolder(holder)} ${heldSnapshot(holder.ageMs)}, ${quantity(holder.xids, 'transaction')} old`,
      consequence:
        'Vacuum cannot remove rows that were deleted since then. Dead rows accumulate in the queue and slow down every claim.',
      fix: commandToEnd(holder),
    });
  }
  if (hidden > 0) {
    found.push(
      note(
        `this role cannot see ${quantity(hidden, 'session')} of other roles`,
        'One of them may hold an old snapshot.',
        `grant pg_read_all_stats to ${JSON.stringify(currentRole)};`,
      ),
    );
  }
  if (found.length > 0) return found;
  const [oldest] = holders;
  const age = oldest?.ageMs === undefined ? '' : `, ${duration(oldest.ageMs)} old`;
  return [
    ok(oldest === undefined ? 'no other session holds a snapshot' : `oldest snapshot: ${describeHolder(oldest)}${age}`),
  ];
}

function heldSnapshot(ageMs: number | undefined): string {
  return ageMs === undefined ? 'holds a snapshot' : `has held a snapshot for ${duration(ageMs)}`;
}

export function slotFindings(slots: readonly SlotFacts[], limits: Pick<DoctorLimits, 'slotBytesMax'>): CheckFinding[] {
  const found: CheckFinding[] = [];
  for (const { name, type, active, walStatus, retainedBytes } of slots) {
    const fix = `select pg_drop_replication_slot(${quoteLiteral(name)}); -- if it has no reader any more`;
    const slot = `the ${type} replication slot ${name}`;
    const kept = size(retainedBytes ?? 0);
    if (walStatus === 'lost') {
      found.push(warning(`${slot} has lost its WAL`, 'Its reader cannot continue from it.', fix));
      continue;
    }
    const over = severityOver(retainedBytes ?? 0, limits.slotBytesMax);
    const severity = over === 'ok' && !active ? 'warning' : over;
    if (severity === 'ok') continue;
    found.push({
      severity,
      what: `${slot} ${active ? 'is behind' : 'has no reader'}: the server keeps ${kept} of WAL for it`,
      consequence: 'The server keeps this WAL until a reader consumes it. A full disk stops the whole server.',
      fix: active ? 'find out why its reader is slow; limit the WAL with max_slot_wal_keep_size' : fix,
    });
  }
  if (slots.length > 0 && slots.every(({ walKeepBytesMax }) => walKeepBytesMax === null)) {
    const consequence = 'A slot without a reader can fill the disk of the server.';
    const fix = "alter system set max_slot_wal_keep_size = '50GB'; select pg_reload_conf();";
    found.push(note('max_slot_wal_keep_size is not set', consequence, fix));
  }
  return found.length > 0 ? found : [ok(`${quantity(slots.length, 'replication slot')}`)];
}
