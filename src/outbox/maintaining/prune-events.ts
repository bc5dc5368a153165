import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

const pruneEventsSql = perSchema(
  (s) => `
select ${s}.prune_events($1::text::bigint, $2::text::double precision, $3::text::integer, $4::text::boolean)::text
       as json`,
);

/** The result of one chunk. */
export interface PrunedChunk {
  /** Events removed from the log. */
  pruned: number;
  /** Where the next chunk begins. */
  reached: string;
  /** Whether nothing old enough is left. */
  finished: boolean;
  /** Old enough, but kept because they are not delivered yet. */
  queued: number;
  /** Old enough, but kept because they wait for a destination. */
  shelved: number;
  /** Old enough, but kept because they are dead letters that were not discarded. */
  dead: number;
  /** Old enough, but kept because they are unqueued: there is no record of a delivery, and no relay will deliver them. */
  unqueued: number;
}

/**
 * Removes old events from the log, with their failures, discarded dead letters, and delivery records without remaining
 * events. Never removes an undelivered event, whatever its age. Processes one chunk of the log: the lowest seqs after
 * `after`. Safe to repeat, also from two processes: removed events are not found again.
 *
 * In a partitioned log it processes only the default partition.
 */
export async function pruneEvents(
  db: Executor,
  schema: string,
  { after, keepMs, rowsMax, dryRun = false }: { after: string; keepMs: number; rowsMax: number; dryRun?: boolean },
): Promise<PrunedChunk> {
  const values = [after, String(keepMs), String(rowsMax), String(dryRun)];
  const [chunk] = await readJson<PrunedChunk>(db, pruneEventsSql(schema), values);
  return chunk as PrunedChunk;
}
