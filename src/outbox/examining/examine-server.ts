import type { Executor } from '../../database/executor.ts';
import { readJson } from '../read-json.ts';

// Every role may read this. pg_stat_activity hides sessions of other roles; the sum of numbackends counts all.
const examineServerSql = `
select json_build_object(
  'version', current_setting('server_version'),
  'versionNumber', current_setting('server_version_num')::integer,
  'encoding', getdatabaseencoding(),
  'standby', pg_is_in_recovery(),
  'readOnly', current_setting('default_transaction_read_only') = 'on',
  'connections', (select coalesce(sum(d.numbackends), 0)::integer from pg_stat_database d where d.datname is not null),
  'connectionsReserved', (select coalesce(sum(s.setting::integer), 0)::integer from pg_settings s
                           where s.name in ('superuser_reserved_connections', 'reserved_connections')),
  'connectionsMax', current_setting('max_connections')::integer,
  'settings', (select json_object_agg(s.name, s.setting) from pg_settings s where s.name in (
     'fsync', 'synchronous_commit', 'full_page_writes', 'autovacuum', 'track_counts', 'wal_level',
     'idle_in_transaction_session_timeout', 'default_transaction_isolation')),
  'nowMs', floor(extract(epoch from clock_timestamp()) * 1000)
)::text as json`;

type SettingName =
  | 'fsync'
  | 'synchronous_commit'
  | 'full_page_writes'
  | 'autovacuum'
  | 'track_counts'
  | 'wal_level'
  | 'idle_in_transaction_session_timeout'
  | 'default_transaction_isolation';

/** The server as this session sees it. */
export interface ServerFacts {
  /** `18.4`. */
  version: string;
  /** `180004`. */
  versionNumber: number;
  encoding: string;
  standby: boolean;
  /** Whether transactions are read-only by default. */
  readOnly: boolean;
  connections: number;
  /** Connections of `connectionsMax` that are reserved, e.g. for superusers. */
  connectionsReserved: number;
  connectionsMax: number;
  settings: Record<SettingName, string>;
  /** The database's clock. */
  nowMs: number;
}

export async function examineServer(db: Executor): Promise<ServerFacts> {
  const [facts] = await readJson<ServerFacts>(db, examineServerSql);
  return facts as ServerFacts;
}
