import type { Executor } from '../../database/executor.ts';
import { readJson } from '../read-json.ts';

const slotsMax = 100;

const examineSlotsSql = `
select json_build_object(
  'name', s.slot_name, 'type', s.slot_type, 'active', s.active, 'walStatus', s.wal_status,
  'retainedBytes', greatest(0, pg_wal_lsn_diff(
     case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end, s.restart_lsn)),
  'lagBytes', greatest(0, pg_wal_lsn_diff(
     case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end, s.confirmed_flush_lsn)),
  'walKeepBytesMax', nullif(current_setting('max_slot_wal_keep_size'), '-1')
)::text as json
  from pg_replication_slots s where not s.temporary
 order by s.restart_lsn nulls first limit ${slotsMax}`;

/** A replication slot of the server, whatever uses it: all share one disk. */
export interface SlotFacts {
  name: string;
  type: 'physical' | 'logical';
  active: boolean;
  /** `reserved`, `extended`, `unreserved` or `lost`. */
  walStatus: string | null;
  /** WAL that the server keeps for it. */
  retainedBytes: number | null;
  /** WAL that its consumer has not confirmed; `null` for a physical slot. */
  lagBytes: number | null;
  /** max_slot_wal_keep_size; `null`: no limit. */
  walKeepBytesMax: string | null;
}

export function examineSlots(db: Executor): Promise<SlotFacts[]> {
  return readJson<SlotFacts>(db, examineSlotsSql);
}
