import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import type { PartitionChoice } from '../../database/migrate-options.ts';
import { readJson } from '../read-json.ts';

const rotateSql = perSchema((s) => `select ${s}.rotate_partitions($1::text::boolean)::text as json`);

/** The result of a rotation. */
export interface Rotation {
  /** `none`: the log is not partitioned, nothing was done. */
  unit: PartitionChoice;
  /** The partition that new events go into. */
  current?: number;
  /** The partition that this call opened. */
  opened?: number;
  /** Partitions that this call created ahead. */
  created: number[];
  /**
   * The next partition is due, but running transactions began before it was created and do not see it. It is opened after
   * they have ended.
   */
  waiting?: true;
  /** The current partition, if it is missing and no other could be opened: events go into the default partition. */
  missing?: number;
  /** Why a partition could not be created. Writers continue in the current one. */
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
 * Keeps two partitions ahead, and opens the next one when the day or month is over, when the current one is missing, or with
 * `now`. Any number of relays may call it concurrently: they take turns, and the sequence only moves up. A partition that
 * cannot be created, e.g. for lack of disk space, is a result and not an exception.
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
