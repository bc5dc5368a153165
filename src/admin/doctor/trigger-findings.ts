import { quoteIdentifier } from '../../database/identifier.ts';
import { roleRights } from '../../database/roles.ts';
import type { TriggerFacts } from '../../outbox/examining/examine-triggers.ts';
import type { CheckFinding } from './finding.ts';
import { critical, ok, warning } from './finding.ts';

const expectedTriggers: { name: string; table: string; consequence: string; isChoice?: boolean }[] = [
  {
    name: 'outbox_events_enqueue',
    table: 'outbox_events',
    consequence: 'Events are written to the log, but never delivered.',
  },
  { name: 'outbox_events_begin', table: 'outbox_events', consequence: 'An event may be delivered out of order.' },
  { name: 'outbox_shelf_requeue', table: 'outbox_shelf', consequence: 'An event may be delivered out of order.' },
  {
    name: 'outbox_dead_letters_requeue',
    table: 'outbox_dead_letters',
    consequence: 'Relays may deliver a retried dead letter late.',
  },
  {
    name: 'outbox_events_truncate',
    table: 'outbox_events',
    consequence: 'Relays may deliver events late after TRUNCATE.',
  },
  {
    name: 'outbox_queue_truncate',
    table: 'outbox_queue',
    consequence: 'Relays may deliver events late after TRUNCATE.',
  },
  // Of `postcommit migrate --notify-trigger`: without that choice it is not there.
  {
    name: 'outbox_events_notify',
    table: 'outbox_events',
    consequence: 'Plain INSERTs do not notify relays.',
    isChoice: true,
  },
];

const expectedRoutines = [...new Set(Object.values(roleRights).flatMap(({ routines }) => routines))].map(
  (routine) => routine.split('(')[0] as string,
);

/** Whether the triggers, functions, the view and the sequence of the migrations exist and are enabled. */
export function triggerFindings(
  schema: string,
  { triggers, routines, statusView, seqCache }: TriggerFacts,
): CheckFinding[] {
  const s = quoteIdentifier(schema);
  const restore = 'run its CREATE statement from `npx postcommit sql` as the owner';
  const found: CheckFinding[] = [];
  for (const { name, table, consequence, isChoice } of expectedTriggers) {
    const there = triggers.find((trigger) => trigger.name === name && trigger.table === table);
    if (!there) {
      if (!isChoice) found.push(critical(`the trigger ${name} on ${table} is missing`, consequence, restore));
    } else if (there.fires !== 'A') {
      const fix = `alter table ${s}.${table} enable always trigger ${name};`;
      const state = there.fires === 'O' ? 'does not fire with session_replication_role = replica' : 'is disabled';
      const finding = there.fires === 'O' || isChoice ? warning : critical;
      found.push(finding(`the trigger ${name} on ${table} ${state}`, consequence, fix));
    }
  }
  const missing = expectedRoutines.filter((name) => !routines.includes(name));
  if (missing.length > 0) {
    found.push(
      critical(
        `missing functions: ${missing.map((name) => `${name}()`).join(', ')}`,
        'Statements that call them fail.',
        restore,
      ),
    );
  }
  if (!statusView) {
    found.push(
      critical(
        'the view outbox_status is missing',
        'Statements that read it fail, those of `postcommit events` among them. Delivery goes on.',
        `${restore}, then grant it to readers and relays again (\`npx postcommit grants\`)`,
      ),
    );
  }
  if (seqCache !== 1) {
    const what = seqCache === null ? 'seq does not use a sequence' : `the sequence of seq has a cache of ${seqCache}`;
    const fix = `alter table ${s}.outbox_events alter seq set cache 1;`;
    found.push(critical(what, 'Events of an aggregate may be delivered out of commit order.', fix));
  }
  return found.length > 0 ? found : [ok('triggers, functions, the view and the sequence match the migrations')];
}
