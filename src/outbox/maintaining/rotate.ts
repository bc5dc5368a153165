import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import type { PartitionChoice } from '../../database/migrate.ts';
import { readJson } from '../read-json.ts';

const rotateSql = perSchema((s) => `select ${s}.rotate_partitions($1::text::boolean)::text as json`);

/** What a rotation found and did. */
export interface Rotation {
  /** `none`: the log is not partitioned, and nothing was done. */
  unit: PartitionChoice;
  /** The partition that new events go into. */
  current?: number;
  /** The partition that was opened just now. */
  opened?: number;
  /** Partitions that were made, to be ahead. */
  created: number[];
  /**
   * The next partition should be opened, and transactions are under way that do not know it, because they began before it
   * was made. It is opened when they have ended.
   */
  waiting?: true;
  /** The current partition, if it is not there and no other could be opened: events go into the default partition. */
  missing?: number;
  /** Why a partition could not be made. Writers go on where they are. */
  error?: { code: string; message: string };
}

interface RotationRow {
  unit: Rotation['unit'];
  current?: number;
  opened?: number | null;
  created?: number[];
  waiting?: boolean;
  missing?: number | null;
  error?: string | null;
  errorCode?: string | null;
}

/**
 * Keeps two partitions ahead, and opens the next one when the day or month is over, when the current one is missing, or
 * when `now` says so. Any number of relays may call it at once: they take turns, and the sequence only ever moves up. That
 * a partition cannot be made, for want of space say, is an answer and not an exception.
 */
export async function rotate(db: Executor, schema: string, { now = false } = {}): Promise<Rotation> {
  const [row] = await readJson<RotationRow>(db, rotateSql(schema), [String(now)]);
  const { unit, current, opened, created = [], waiting, missing, error, errorCode } = row as RotationRow;
  return {
    unit,
    ...(current !== undefined && { current }),
    ...(opened != null && { opened }),
    created,
    ...(waiting && { waiting }),
    ...(missing != null && { missing }),
    ...(error != null && { error: { code: errorCode ?? '', message: error } }),
  };
}
