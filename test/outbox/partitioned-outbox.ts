import type pg from 'pg';
import { afterEach, expect } from 'vitest';
import type { EmbeddedPostgresVersion } from '../../src/embedded/postgres-binaries.ts';
import { createOutbox, createRelay, fromPg, migrate, type Outbox, type PartitionChoice } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { serverUrlOf } from '../support/postgres-versions.ts';
import { recordServer } from '../support/servers-used.ts';

/** How many seqs a partition has room for. */
export const room = 1_000_000_000_000;

/** An outbox of its own for each test that begins one, on one server for all of them. */
export class PartitionedOutbox {
  serverUrl = '';
  db!: TestDatabase;
  outbox!: Outbox<pg.PoolClient>;
  readonly #open: TestDatabase[] = [];

  async begin(partitions: PartitionChoice = 'day'): Promise<void> {
    this.db = await this.database();
    expect(await migrate({ connectionString: this.db.url, partitions })).toMatchObject({ applied: [], partitions });
    this.outbox = createOutbox<pg.PoolClient>({ db: fromPg(this.db.pool), notify: false });
    const [{ server_version: found }] = await this.db.query('show server_version');
    recordServer(`PostgreSQL ${found}`);
  }

  /** Another database on the same server. */
  async database(options: { migrate?: boolean } = {}): Promise<TestDatabase> {
    const database = await createTestDatabase({ ...options, serverUrl: this.serverUrl });
    this.#open.push(database);
    return database;
  }

  /** Emits events of one aggregate in one transaction. Returns their seqs. */
  async emit(...payloads: unknown[]): Promise<string[]> {
    const before = await this.lastSeq();
    await this.outbox.transaction((_tx, emit) =>
      emit(payloads.map((payload) => ({ type: 'x', aggregate: ['a', '1'] as const, payload }))),
    );
    const rows = await this.db.query<{ seq: string }>(
      'select seq::text from postcommit.outbox_events e where e.seq > $1 order by e.seq',
      [before],
    );
    return rows.map(({ seq }) => seq);
  }

  async lastSeq(): Promise<string> {
    const [row] = await this.db.query('select coalesce(max(seq), 0)::text as seq from postcommit.outbox_events');
    return row.seq;
  }

  /** Delivers what is due; payloads in the order in which they came. `poison` becomes a dead letter. */
  async deliver(): Promise<unknown[]> {
    const seen: unknown[] = [];
    const see = (event: { payload: unknown }) => {
      if (event.payload === 'poison') throw new Error('no');
      seen.push(event.payload);
    };
    const relay = createRelay({
      connectionString: this.db.url,
      retry: { delaysMs: [] },
      maintenance: false, // The tests rotate and drop themselves.
      handlers: { x: { see } },
    });
    await relay.runOnce();
    return seen;
  }

  /** `0 closed`, `1 open`, … */
  async states(): Promise<string[]> {
    const { partitions } = await this.outbox.admin.partitions.list();
    return partitions.map(({ number, state }) => `${number} ${state}`);
  }

  async closeLongAgo(number: number): Promise<void> {
    await this.db.query(
      `update postcommit.outbox_partitions set closed_at = now() - interval '40 days' where number = $1`,
      [number],
    );
  }

  async close(): Promise<void> {
    await Promise.all(this.#open.splice(0).map((database) => database.close()));
  }
}

/** To be called inside a describe. */
export function usePartitionedOutbox(version: EmbeddedPostgresVersion): PartitionedOutbox {
  const scene = new PartitionedOutbox();
  scene.serverUrl = serverUrlOf(version);
  afterEach(() => scene.close());
  return scene;
}
