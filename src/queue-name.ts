/** The queue of events for which no other was chosen. */
export const defaultQueue = 'default';

/** Also in migrations: check_event.sql, and the check of outbox_queue_states in 0001_outbox.sql. */
const queueName = /^[A-Za-z0-9._-]{1,100}$/;

export const queueNameRule = 'a text of 1 to 100 letters, digits, dots, hyphens and underscores';

export function isQueueName(name: unknown): name is string {
  return typeof name === 'string' && queueName.test(name);
}
