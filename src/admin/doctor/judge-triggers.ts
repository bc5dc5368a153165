import { quoteIdentifier } from '../../database/identifier.ts';
import { roleRights } from '../../database/roles.ts';
import type { TriggerFacts } from '../../outbox/examining/examine-triggers.ts';
import type { Judgement } from './finding.ts';
import { critical, ok, warning } from './finding.ts';

const expectedTriggers = [
  {
    name: 'outbox_events_enqueue',
    table: 'outbox_events',
    consequence: 'Events are written into the log and never delivered.',
  },
  { name: 'outbox_events_begin', table: 'outbox_events', consequence: 'An event may be delivered out of order.' },
  { name: 'outbox_shelf_requeue', table: 'outbox_shelf', consequence: 'An event may be delivered out of order.' },
  {
    name: 'outbox_dead_letters_requeue',
    table: 'outbox_dead_letters',
    consequence: 'A dead letter that is retried may be found late.',
  },
  { name: 'outbox_events_truncate', table: 'outbox_events', consequence: 'Events may be found late after TRUNCATE.' },
  { name: 'outbox_queue_truncate', table: 'outbox_queue', consequence: 'Events may be found late after TRUNCATE.' },
];

const expectedRoutines = [...new Set(Object.values(roleRights).flatMap(({ routines }) => routines))].map(
  (routine) => routine.split('(')[0] as string,
);

/** Whether everything is there, and at work, that the migrations made beside tables and indexes. */
export function judgeTriggers(schema: string, { triggers, routines, seqCache }: TriggerFacts): Judgement[] {
  const s = quoteIdentifier(schema);
  const restore = 'take its statement from `postcommit sql` and run it as the owner';
  const found: Judgement[] = [];
  for (const { name, table, consequence } of expectedTriggers) {
    const there = triggers.find((trigger) => trigger.name === name && trigger.table === table);
    if (!there) found.push(critical(`the trigger ${name} on ${table} is missing`, consequence, restore));
    else if (there.fires !== 'A') {
      const fix = `alter table ${s}.${table} enable always trigger ${name};`;
      const state = there.fires === 'O' ? 'does not fire with session_replication_role = replica' : 'is disabled';
      const judge = there.fires === 'O' ? warning : critical;
      found.push(judge(`the trigger ${name} on ${table} ${state}`, consequence, fix));
    }
  }
  const missing = expectedRoutines.filter((name) => !routines.includes(name));
  if (missing.length > 0) {
    found.push(critical(`missing: ${missing.map((name) => `${name}()`).join(', ')}`, 'What calls it fails.', restore));
  }
  if (seqCache !== 1) {
    const what = seqCache === null ? 'seq is not drawn from a sequence' : `each session draws ${seqCache} seqs ahead`;
    const fix = `alter table ${s}.outbox_events alter seq set cache 1;`;
    found.push(critical(what, 'Events of one aggregate may be delivered in another order than they committed.', fix));
  }
  return found.length > 0 ? found : [ok('triggers, functions and the sequence are as the migrations made them')];
}
