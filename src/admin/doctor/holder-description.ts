import { quoteLiteral } from '../../database/identifier.ts';
import type { SnapshotHolder } from '../../outbox/examining/examine-snapshots.ts';
import { queryText } from '../query-text.ts';

type Holder = Omit<SnapshotHolder, 'xids' | 'ageMs'>;

/** Describes the session, slot or transaction that holds a snapshot or a lock. */
export function describeHolder(holder: Holder): string {
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
  return `${kind === 'standby' ? 'the standby of session' : 'session'} ${name} (${facts.join(', ')})`;
}

/** The command that makes it let go. */
export function commandToEnd({ kind, name }: Pick<Holder, 'kind' | 'name'>): string {
  switch (kind) {
    case 'session':
      return `select pg_terminate_backend(${name});`;
    case 'standby':
      return 'on the standby: alter system set hot_standby_feedback = off; select pg_reload_conf(); or end its long-running queries';
    case 'prepared':
      return `rollback prepared ${quoteLiteral(name)}; -- or commit prepared, if its coordinator decided to commit`;
    case 'slot':
      return `select pg_drop_replication_slot(${quoteLiteral(name)}); -- if it has no reader any more`;
  }
}
