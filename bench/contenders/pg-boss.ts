import { importPeer, peerPackageJson } from '../peers.ts';
import { type Contender, chunks, payloadOf, type Settings } from './contender.ts';
import { plainEmitter } from './orders.ts';

interface Job {
  id: string;
  data: unknown;
}

/** The part of pg-boss 12 that is used here. Not its own types, so that type checks need no peers. */
interface Boss {
  start(): Promise<unknown>;
  stop(options: { graceful: boolean }): Promise<void>;
  on(event: 'error', listener: (error: unknown) => void): unknown;
  createQueue(name: string, options: Record<string, unknown>): Promise<void>;
  insert(name: string, jobs: { data: unknown }[]): Promise<unknown>;
  send(name: string, data: unknown, options: Record<string, unknown>): Promise<string | null>;
  work(name: string, options: Record<string, unknown>, handler: (jobs: Job[]) => Promise<void>): Promise<unknown>;
}

const queue = 'noop';

async function connect(connectionString: string, useListenNotify: boolean): Promise<Boss> {
  const { PgBoss } = await importPeer<{ PgBoss: new (options: unknown) => Boss }>('pg-boss');
  // Without supervision and schedules it has nothing to do besides the drain.
  const boss = new PgBoss({ connectionString, supervise: false, schedule: false, useListenNotify });
  boss.on('error', (error) => console.error('pg-boss:', error));
  await boss.start();
  return boss;
}

function pgBoss(
  own: Pick<Contender, 'name' | 'settings' | 'limits'>,
  { notify, work }: { notify: boolean; work: (settings: Settings) => Record<string, unknown> },
): Contender {
  return {
    ...own,
    packageJson: peerPackageJson('pg-boss'),
    claimStatement: /skip locked/i,

    async prepare({ connectionString, settings }) {
      const boss = await connect(connectionString, false);
      await boss.createQueue(queue, { policy: 'standard', partition: settings.ownPartition === 1, notify });
      await boss.stop({ graceful: false });
    },

    async fill({ connectionString, backlog }) {
      const boss = await connect(connectionString, false);
      for (const indexes of chunks(backlog)) {
        await boss.insert(
          queue,
          indexes.map((index) => ({ data: payloadOf(index, backlog.payloadBytes) })),
        );
      }
      await boss.stop({ graceful: false });
    },

    async start({ connectionString, settings }, onEvent) {
      const boss = await connect(connectionString, notify);
      await boss.work(queue, work(settings), async (jobs) => {
        for (const job of jobs) onEvent(job.id, job.data);
      });
      return { stop: () => boss.stop({ graceful: false }) };
    },

    orderOf: (data) => (data as { orderId: number }).orderId,

    async connectEmitter({ connectionString, backlog }) {
      const boss = await connect(connectionString, false);
      const emitter = plainEmitter(connectionString, (client, order) =>
        boss.send(queue, payloadOf(order, backlog.payloadBytes), {
          db: { executeSql: (text: string, values: unknown[]) => client.query(text, values) },
        }),
      );
      return {
        ...emitter,
        async stop() {
          await emitter.stop();
          await boss.stop({ graceful: false });
        },
      };
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
}

/**
 * pg-boss's best mode: several workers, each claiming a batch and completing it in one statement, fetching again at once
 * while batches come back full. Standard policy, so no order. Four workers with batches of 500 won here
 * (bench/README.md has the tuning runs).
 */
export const pgBossBatch = pgBoss(
  { name: 'pg-boss-batch', settings: { workers: 4, batchSize: 500, ownPartition: 0 } },
  {
    notify: false,
    work: ({ workers, batchSize }) => ({
      localConcurrency: workers,
      batchSize,
      burstWhenBatchFull: true,
      pollingIntervalSeconds: 0.5,
    }),
  },
);

/** pg-boss as it comes: one worker that fetches one job every two seconds. */
export const pgBossDefault = pgBoss(
  { name: 'pg-boss', settings: {}, limits: { events: 5, rounds: 1, processes: 1 } },
  { notify: false, work: () => ({}) },
);

/** pg-boss for latency: woken by NOTIFY. In batches, because several jobs may have come since it was last woken. */
export const pgBossNotify = pgBoss(
  { name: 'pg-boss-notify', settings: { workers: 1, batchSize: 100 } },
  {
    notify: true,
    work: ({ workers, batchSize }) => ({ localConcurrency: workers, batchSize, pollingIntervalSeconds: 0.5 }),
  },
);
