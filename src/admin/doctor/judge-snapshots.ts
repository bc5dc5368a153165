import { quoteLiteral } from '../../database/identifier.ts';
import type { SlotFacts } from '../../outbox/examine-slots.ts';
import type { SnapshotFacts, SnapshotHolder } from '../../outbox/examine-snapshots.ts';
import { duration, quantity, size } from '../../plain-words.ts';
import { queryText } from '../query-text.ts';
import type { Judgement } from './finding.ts';
import { note, ok, severityOver, warning } from './finding.ts';
import type { DoctorLimits } from './limits.ts';

/** A slot has no age in time; so many transactions are a busy hour. */
const slotXidsMax = 1_000_000;

export function judgeSnapshots(
  { holders, hidden }: SnapshotFacts,
  limits: Pick<DoctorLimits, 'snapshotMs'>,
  currentRole: string,
): Judgement[] {
  const found: Judgement[] = [];
  for (const holder of holders) {
    const severity =
      holder.ageMs === undefined
        ? severityOver(holder.xids, slotXidsMax)
        : severityOver(holder.ageMs, limits.snapshotMs);
    if (severity === 'ok') continue;
    found.push({
      severity,
      what: `${describe(holder)} holds a snapshot${holder.ageMs === undefined ? '' : ` since ${duration(holder.ageMs)}`}, ${quantity(holder.xids, 'transaction')} old`,
      consequence:
        'Vacuum removes nothing that was deleted since: dead rows pile up in the queue and slow every claim down.',
      fix: howToEnd(holder),
    });
  }
  if (hidden > 0) {
    found.push(
      note(
        `${quantity(hidden, 'session')} of other roles cannot be looked at`,
        'One of them may hold an old snapshot.',
        `grant pg_read_all_stats to ${JSON.stringify(currentRole)};`,
      ),
    );
  }
  if (found.length > 0) return found;
  const [oldest] = holders;
  const age = oldest?.ageMs === undefined ? '' : ` since ${duration(oldest.ageMs)}`;
  return [
    ok(oldest === undefined ? 'no other session holds a snapshot' : `the oldest snapshot: ${describe(oldest)}${age}`),
  ];
}

function describe(holder: SnapshotHolder): string {
  const { kind, name, role, application, address, state, query } = holder;
  if (kind === 'slot') return `the replication slot ${name}`;
  if (kind === 'prepared') return `the prepared transaction ${quoteLiteral(name)} of ${role}`;
  const facts = [
    ...(role ? [`role ${role}`] : []),
    ...(application ? [`application ${application}`] : []),
    ...(address ? [`from ${address}`] : []),
    ...(state ? [state] : []),
    ...(query ? [`query: ${queryText(query)}`] : []),
  ];
  return `${kind === 'standby' ? 'the standby behind session' : 'session'} ${name} (${facts.join(', ')})`;
}

function howToEnd({ kind, name }: SnapshotHolder): string {
  switch (kind) {
    case 'session':
      return `select pg_terminate_backend(${name});`;
    case 'standby':
      return 'on the standby: alter system set hot_standby_feedback = off; select pg_reload_conf(); or end its long queries';
    case 'prepared':
      return `rollback prepared ${quoteLiteral(name)}; -- or commit prepared, if its coordinator said so`;
    case 'slot':
      return `select pg_drop_replication_slot(${quoteLiteral(name)}); -- if nobody reads it any more`;
  }
}

export function judgeSlots(slots: readonly SlotFacts[], limits: Pick<DoctorLimits, 'slotBytes'>): Judgement[] {
  const found: Judgement[] = [];
  for (const { name, type, active, walStatus, retainedBytes } of slots) {
    const fix = `select pg_drop_replication_slot(${quoteLiteral(name)}); -- if nobody reads it any more`;
    const slot = `the ${type} replication slot ${name}`;
    const kept = size(retainedBytes ?? 0);
    if (walStatus === 'lost') {
      found.push(warning(`${slot} has lost its WAL`, 'Its reader can never go on from it.', fix));
      continue;
    }
    const over = severityOver(retainedBytes ?? 0, limits.slotBytes);
    const severity = over === 'ok' && !active ? 'warning' : over;
    if (severity === 'ok') continue;
    found.push({
      severity,
      what: `${slot} is ${active ? 'behind' : 'not read by anybody'}: the server keeps ${kept} of WAL for it`,
      consequence: 'It keeps WAL until its reader comes back, and a full disk stops the whole server.',
      fix: active ? 'see why its reader is slow; bound it with max_slot_wal_keep_size' : fix,
    });
  }
  if (slots.length > 0 && slots.every(({ walKeepBytesMax }) => walKeepBytesMax === null)) {
    const consequence = 'A reader that stays away can fill the disk of the server.';
    const fix = "alter system set max_slot_wal_keep_size = '50GB'; select pg_reload_conf();";
    found.push(note('max_slot_wal_keep_size is not set', consequence, fix));
  }
  return found.length > 0 ? found : [ok(`${quantity(slots.length, 'replication slot')}`)];
}
