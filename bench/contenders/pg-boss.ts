import { importPeer, peerPackageJson } from '../peers.ts';
import { type Contender, chunks, payloadOf } from './contender.ts';

interface Job {
  id: string;
}

/** The part of pg-boss 12 that is used here. Not its own types, so that type checks need no peers. */
interface Boss {
  start(): Promise<unknown>;
  stop(options: { graceful: boolean }): Promise<void>;
  on(event: 'error', listener: (error: unknown) => void): unknown;
  createQueue(name: string, options: Record<string, unknown>): Promise<void>;
  insert(name: string, jobs: { data: unknown }[]): Promise<unknown>;
  work(name: string, options: Record<string, unknown>, handler: (jobs: Job[]) => Promise<void>): Promise<unknown>;
}

const queue = 'noop';

async function connect(connectionString: string): Promise<Boss> {
  const { PgBoss } = await importPeer<{ PgBoss: new (options: unknown) => Boss }>('pg-boss');
  // Without supervision and schedules it has nothing to do besides the drain.
  const boss = new PgBoss({ connectionString, supervise: false, schedule: false });
  boss.on('error', (error) => console.error('pg-boss:', error));
  await boss.start();
  return boss;
}

/**
 * pg-boss's best mode: several workers, each claiming a batch and completing it in one statement, fetching again at once
 * while batches come back full. Standard policy, so no order. Four workers with batches of 500 won here
 * (bench/README.md has the tuning runs).
 */
export const pgBossBatch: Contender = {
  name: 'pg-boss-batch',
  packageJson: peerPackageJson('pg-boss'),
  settings: { workers: 4, batchSize: 500, ownPartition: 0 },
  claimStatement: /skip locked/i,

  async prepare({ connectionString, settings }) {
    const boss = await connect(connectionString);
    await boss.createQueue(queue, { policy: 'standard', partition: settings.ownPartition === 1 });
    await boss.stop({ graceful: false });
  },

  async fill({ connectionString, backlog }) {
    const boss = await connect(connectionString);
    for (const indexes of chunks(backlog)) {
      await boss.insert(
        queue,
        indexes.map((index) => ({ data: payloadOf(index, backlog.payloadBytes) })),
      );
    }
    await boss.stop({ graceful: false });
  },

  async start({ connectionString, settings }, onEvent) {
    const boss = await connect(connectionString);
    await boss.work(
      queue,
      {
        localConcurrency: settings.workers,
        batchSize: settings.batchSize,
        burstWhenBatchFull: true,
        pollingIntervalSeconds: 0.5,
      },
      async (jobs) => {
        for (const job of jobs) onEvent(job.id);
      },
    );
    return { stop: () => boss.stop({ graceful: false }) };
  },

  async unsettled(db, ids) {
    const { rows } = await db.query(
      `select exists (
         select from unnest($1::uuid[]) as recent (id)
         join pgboss.job using (id)
         where job.name = $2 and job.state < 'completed'
       ) as found`,
      [ids, queue],
    );
    return rows[0]?.found === true;
  },

  async remaining(db, backlog) {
    const { rows } = await db.query(
      `select count(*)::int as completed from pgboss.job where name = $1 and state = 'completed'`,
      [queue],
    );
    return backlog.events - Number(rows[0]?.completed);
  },
};
