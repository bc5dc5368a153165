import type pg from 'pg';
import { serverCpuMs } from './server-cpu.ts';

/** What a drain cost the database. */
export interface Costs {
  walBytes: number;
  /** Processor time of all of the server's processes; undefined where it cannot be told. */
  serverCpuMs: number | undefined;
  /** Row versions that updates and deletes left behind, whether or not vacuum has removed them since. */
  deadTuples: number;
  /** Rows of all tables that index scans fetched and sequential scans read. */
  rowsFetched: number;
}

/** Starts counting. The result counts what happened since then; everybody else's connections should have ended. */
export async function watchCosts(db: pg.Client): Promise<() => Promise<Costs>> {
  const before = await counters(db);
  return async () => {
    const after = await counters(db);
    const cpu =
      after.serverCpuMs === undefined || before.serverCpuMs === undefined
        ? undefined
        : after.serverCpuMs - before.serverCpuMs;
    return {
      walBytes: after.walBytes - before.walBytes,
      serverCpuMs: cpu,
      deadTuples: after.deadTuples - before.deadTuples,
      rowsFetched: after.rowsFetched - before.rowsFetched,
    };
  };
}

async function counters(db: pg.Client): Promise<Costs> {
  const { rows } = await db.query(
    `select pg_backend_pid() as pid,
            (pg_current_wal_insert_lsn() - '0/0')::float8 as "walBytes",
            (select coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 from pg_stat_user_tables) as "deadTuples",
            (select coalesce(sum(coalesce(idx_tup_fetch, 0) + seq_tup_read), 0)::float8
               from pg_stat_user_tables) as "rowsFetched"`,
  );
  const { pid, walBytes, deadTuples, rowsFetched } = rows[0];
  return { walBytes, deadTuples, rowsFetched, serverCpuMs: serverCpuMs(pid) };
}
