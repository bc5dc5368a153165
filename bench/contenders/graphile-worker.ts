import { importPeer, peerPackageJson } from '../peers.ts';
import { type Contender, chunks, payloadOf, type Target } from './contender.ts';
import { plainEmitter } from './orders.ts';

/** The part of graphile-worker 0.18 that is used here. Not its own types, so that type checks need no peers. */
interface GraphileWorker {
  makeWorkerUtils(options: { connectionString: string }): Promise<{
    migrate(): Promise<void>;
    addJobs(specs: { identifier: string; payload: unknown }[]): Promise<unknown>;
    release(): Promise<void>;
  }>;
  run(options: unknown): Promise<{ stop(): Promise<void> }>;
  Logger: new (factory: () => () => void) => unknown;
}

const load = () => importPeer<GraphileWorker>('graphile-worker');

function graphileWorker(
  own: Pick<Contender, 'name' | 'settings' | 'limits'>,
  preset: (settings: Target['settings']) => Record<string, unknown>,
): Contender {
  return {
    ...own,
    packageJson: peerPackageJson('graphile-worker'),
    claimStatement: /_private_jobs[\s\S]*skip locked/i,

    async prepare({ connectionString }) {
      const utils = await (await load()).makeWorkerUtils({ connectionString });
      await utils.migrate();
      await utils.release();
    },

    async fill({ connectionString, backlog }) {
      const utils = await (await load()).makeWorkerUtils({ connectionString });
      for (const indexes of chunks(backlog)) {
        await utils.addJobs(
          indexes.map((index) => ({ identifier: 'noop', payload: payloadOf(index, backlog.payloadBytes) })),
        );
      }
      await utils.release();
    },

    async start({ connectionString, settings }, onEvent) {
      // Otherwise it formats a log line per job, which no one would read at this rate.
      process.env.NO_LOG_SUCCESS = '1';
      const { run, Logger } = await load();
      const runner = await run({
        preset: { worker: { connectionString, ...preset(settings), logger: new Logger(() => () => {}) } },
        taskList: {
          noop: async (payload: unknown, helpers: { job: { id: string } }) => onEvent(helpers.job.id, payload),
        },
      });
      return { stop: () => runner.stop() };
    },

    orderOf: (payload) => (payload as { orderId: number }).orderId,

    async connectEmitter({ connectionString, backlog }) {
      return plainEmitter(connectionString, (client, order) =>
        client.query('select graphile_worker.add_job($1, $2::json)', [
          'noop',
          JSON.stringify(payloadOf(order, backlog.payloadBytes)),
        ]),
      );
    },

    async unsettled(db, ids) {
      const { rows } = await db.query(
        `select exists (
           select from unnest($1::bigint[]) as recent (id)
           join graphile_worker._private_jobs using (id)
         ) as found`,
        [ids],
      );
      return rows[0]?.found === true;
    },

    // A job that succeeded is deleted; one that failed for good would stay.
    async remaining(db) {
      const { rows } = await db.query('select count(*)::int as remaining from graphile_worker._private_jobs');
      return Number(rows[0]?.remaining);
    },
  };
}

/**
 * graphile-worker's best mode: the pool claims `localQueueSize` jobs at once, and completions are batched. No named
 * queues, so no order. These are the settings of its own performance test but for the local queue, which is 500 there:
 * 2,000 was faster here (bench/README.md has the tuning runs).
 */
export const graphileWorkerLocalQueue = graphileWorker(
  {
    name: 'graphile-worker-local-queue',
    settings: { concurrentJobs: 24, localQueueSize: 2_000, completeJobBatchDelayMs: 0, maxPoolSize: 25 },
  },
  (settings) => ({
    concurrentJobs: settings.concurrentJobs,
    maxPoolSize: settings.maxPoolSize,
    localQueue: { size: settings.localQueueSize, refetchDelay: { durationMs: 10 } },
    completeJobBatchDelay: settings.completeJobBatchDelayMs,
    failJobBatchDelay: settings.completeJobBatchDelayMs,
  }),
);

/** graphile-worker as it comes: one job at a time, claimed and completed by itself. */
export const graphileWorkerDefault = graphileWorker(
  { name: 'graphile-worker', settings: { concurrentJobs: 1 }, limits: { events: 5_000 } },
  ({ concurrentJobs }) => ({ concurrentJobs }),
);
