import type { Executor } from '../database/executor.ts';
import { PostcommitError } from '../errors.ts';
import { listQueues } from '../outbox/operating/list-queues.ts';
import { pauseQueue, resumeQueue } from '../outbox/operating/pause-queue.ts';
import { suggest } from '../suggest.ts';
import type { PauseOptions } from './destinations.ts';
import { checkReason } from './destinations.ts';
import { checkOptionNames } from './option-names.ts';

export async function pauseKnownQueue(
  db: Executor,
  schema: string,
  name: string,
  options: PauseOptions,
): Promise<void> {
  checkOptionNames(options, 'pauseQueue', ['reason']);
  const reason = checkReason(options.reason);
  await requireQueue(db, schema, name);
  await pauseQueue(db, schema, name, reason);
}

export async function resumeKnownQueue(db: Executor, schema: string, name: string): Promise<void> {
  await requireQueue(db, schema, name);
  await resumeQueue(db, schema, name);
}

/** A misspelt name would silently pause nothing. */
async function requireQueue(db: Executor, schema: string, name: unknown): Promise<void> {
  const known = (await listQueues(db, schema)).map((queue) => queue.name);
  if (known.includes(name as string)) return;
  const shown = JSON.stringify(name)?.slice(0, 120) ?? String(name);
  const near = typeof name === 'string' ? suggest(name.slice(0, 100), known) : undefined;
  const some = known.slice(0, 20).join(', ');
  throw new PostcommitError(
    'POSTCOMMIT_E_NO_SUCH_QUEUE',
    `Got ${shown}. Known queues: ${some}.${near ? ` Did you mean ${near}?` : ''}`,
  );
}
