import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import { sqlState } from './database-error.ts';
import type { Executor } from './executor.ts';
import { quoteIdentifier } from './identifier.ts';

/** What a migration did with the trigger, or would do. */
export type NotifyTriggerChange = 'installed' | 'removed' | 'kept';

/**
 * The statements that install or remove the trigger; none without a choice. They can be run again.
 *
 * A transaction with a NOTIFY holds a lock of the whole server while it commits, so concurrent writers commit one after the other.
 * A session whose process notifies relays after COMMIT, as this package does, turns the trigger off for itself with a setting.
 */
export function notifyTriggerSql(schema: string, wanted: boolean | undefined): string {
  if (wanted === undefined) return '';
  const s = quoteIdentifier(schema);
  // Both lock the log, and every writer queues behind a session that waits for such a lock.
  const brief = `set local lock_timeout = '2s';\n`;
  if (!wanted) return `${brief}drop trigger if exists outbox_events_notify on ${s}.outbox_events;\n`;
  return `${brief}create or replace trigger outbox_events_notify after insert on ${s}.outbox_events
  for each statement when (coalesce(current_setting('postcommit.notify_trigger', true), '') <> 'off')
  execute function ${s}.notify_trigger();
alter table ${s}.outbox_events enable always trigger outbox_events_notify;\n`;
}

/** What is left to do: `kept` if the trigger is as wanted, which needs no lock and no right. */
export async function findNotifyTriggerChange(
  client: Executor,
  schema: string,
  wanted: boolean,
): Promise<NotifyTriggerChange> {
  const { rows } = await client.query(
    `select tgenabled as fires from pg_trigger
      where tgrelid = to_regclass($1::text) and tgname = 'outbox_events_notify' and not tgisinternal`,
    [`${quoteIdentifier(schema)}.outbox_events`],
  );
  const fires = rows[0]?.fires;
  if (wanted) return fires === 'A' ? 'kept' : 'installed';
  return fires === undefined ? 'kept' : 'removed';
}

/** Call it last in a transaction: writers wait for its end. */
export async function applyNotifyTrigger(
  client: Executor,
  schema: string,
  wanted: boolean | undefined,
): Promise<NotifyTriggerChange | undefined> {
  if (wanted === undefined) return undefined;
  const change = await findNotifyTriggerChange(client, schema, wanted);
  if (change === 'kept') return change;
  try {
    await client.query(notifyTriggerSql(schema, wanted));
    return change;
  } catch (error) {
    if (sqlState(error) !== '55P03') throw error;
    throw new PostcommitError('POSTCOMMIT_E_LOG_IN_USE', 'The trigger outbox_events_notify must be changed.', {
      cause: error,
    });
  }
}

export function checkNotifyTrigger(wanted: unknown): void {
  if (wanted === undefined || typeof wanted === 'boolean') return;
  throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `notifyTrigger must be true or false. Got ${shown(wanted)}.`);
}
