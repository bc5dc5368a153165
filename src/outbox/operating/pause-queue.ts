import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

/** See migrations/routines/pause_queue.sql for the contract and the rationale. */
const pauseQueueSql = perSchema((s) => `select from ${s}.pause_queue($1::text, $2::text)`);

/** Pauses a named queue. When it returns, no relay claims anything from it. */
export async function pauseQueue(db: Executor, schema: string, queue: string, reason: string): Promise<void> {
  await db.query(pauseQueueSql(schema), [queue, reason]);
}

const resumeQueueSql = perSchema(
  (s) =>
    `update ${s}.outbox_queue_states set paused_at = null, reason = null, changed_at = now() where queue = $1::text`,
);

/** Ends a pause. */
export async function resumeQueue(db: Executor, schema: string, queue: string): Promise<void> {
  await db.query(resumeQueueSql(schema), [queue]);
}
