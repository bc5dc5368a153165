import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

const pruneEventsSql = perSchema(
  (s) => `
select ${s}.prune_events($1::text::bigint, $2::text::double precision, $3::text::integer, $4::text::boolean)::text
       as json`,
);

/** What one chunk of a prune did. */
export interface PrunedChunk {
  /** Events removed from the log. */
  pruned: number;
  /** Where the next chunk begins. */
  reached: string;
  /** Whether nothing old enough is left. */
  finished: boolean;
  /** Old enough, and kept because they are not delivered yet. */
  queued: number;
  /** The same, because they wait for a destination. */
  shelved: number;
  /** The same, because they are dead letters that nobody has discarded. */
  dead: number;
  /** The same, because they are orphans: nothing says that they were delivered, and no relay will. */
  orphaned: number;
}

/**
 * Removes old events from the log, with their failures, discarded dead letters, and the records of deliveries of which
 * no event is left. Never one that is still to be delivered, whatever its age. Looks at one chunk of the log: the lowest
 * seqs after `after`. To do it twice, or from two processes, is harmless: a chunk that is gone is not found again.
 *
 * Where the log is partitioned it is about the default partition only.
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
