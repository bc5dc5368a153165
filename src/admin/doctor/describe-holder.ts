import { quoteLiteral } from '../../database/identifier.ts';
import type { SnapshotHolder } from '../../outbox/examining/examine-snapshots.ts';
import { queryText } from '../query-text.ts';

type Holder = Omit<SnapshotHolder, 'xids' | 'ageMs'>;

/** Who holds a snapshot or a lock, with everything that helps to find it. */
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
  return `${kind === 'standby' ? 'the standby behind session' : 'session'} ${name} (${facts.join(', ')})`;
}

/** The command that ends it. */
export function howToEnd({ kind, name }: Pick<Holder, 'kind' | 'name'>): string {
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
