import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { importPeer, peerPackageJson } from '../peers.ts';
import { aggregateOf, type Contender, chunks, payloadOf, type Target } from './contender.ts';

type Listener = (
  config: Record<string, unknown>,
  handler: { handle(message: { id: string }): Promise<void> },
  logger: unknown,
  strategies?: Record<string, unknown>,
) => [shutdown: () => Promise<void>];

/** The part of pg-transactional-outbox 0.5 that is used here. Not its own types, so that type checks need no peers. */
interface PgTransactionalOutbox {
  DatabaseSetup: Record<
    'dropAndCreateTable' | 'createPollingFunction' | 'setupPollingIndexes' | 'setupReplicationCore',
    (config: Record<string, string>) => string
  >;
  initializePollingMessageListener: Listener;
  initializeReplicationMessageListener: Listener;
  createReplicationSegmentMutexConcurrencyController(): unknown;
  getDisabledLogger(): unknown;
}

const load = async (): Promise<PgTransactionalOutbox> => {
  const loaded = await importPeer<PgTransactionalOutbox & { default?: PgTransactionalOutbox }>(
    'pg-transactional-outbox',
  );
  return loaded.default ?? loaded;
};

const slotOf = (connectionString: string) => new URL(connectionString).pathname.slice(1);

/** Every statement of its setup for itself: a slot cannot be made in a transaction that has written. */
async function setUp({ connectionString }: Target, mode: 'polling' | 'replication'): Promise<void> {
  const { DatabaseSetup: sql } = await load();
  const { username, pathname } = new URL(connectionString);
  const config = {
    outboxOrInbox: 'outbox',
    database: pathname.slice(1),
    schema: 'public',
    table: 'outbox',
    listenerRole: username,
    nextMessagesName: 'next_outbox_messages',
    publication: 'bench_outbox',
    replicationSlot: slotOf(connectionString),
  };
  const client = new pg.Client({ connectionString });
  await client.connect();
  await client.query(sql.dropAndCreateTable(config));
  if (mode === 'polling') {
    await client.query(sql.createPollingFunction(config));
    await client.query(sql.setupPollingIndexes(config));
  } else {
    await client.query(sql.setupReplicationCore(config));
    await client.query(`select pg_create_logical_replication_slot('${config.replicationSlot}', 'pgoutput')`);
  }
  await client.end();
}

const shared = {
  packageJson: peerPackageJson('pg-transactional-outbox'),

  async fill({ connectionString, backlog }) {
    const client = new pg.Client({ connectionString });
    await client.connect();
    for (const indexes of chunks(backlog)) {
      await client.query(
        `insert into outbox (id, aggregate_type, aggregate_id, message_type, segment, payload)
         select id, 'order', aggregate_id, 'created', aggregate_id, payload::jsonb
         from unnest($1::uuid[], $2::text[], $3::text[]) as given (id, aggregate_id, payload)`,
        [
          indexes.map(() => randomUUID()),
          indexes.map((index) => aggregateOf(index, backlog.aggregates)),
          indexes.map((index) => JSON.stringify(payloadOf(index, backlog.payloadBytes))),
        ],
      );
    }
    await client.end();
  },

  async unsettled(db, ids) {
    const { rows } = await db.query(
      `select exists (
         select from unnest($1::uuid[]) as recent (id) join outbox using (id) where processed_at is null
       ) as found`,
      [ids],
    );
    return rows[0]?.found === true;
  },

  async remaining(db) {
    const { rows } = await db.query('select count(*)::int as remaining from outbox where processed_at is null');
    return Number(rows[0]?.remaining);
  },
} satisfies Partial<Contender>;

const listenerSettings = {
  dbSchema: 'public',
  dbTable: 'outbox',
  enableMaxAttemptsProtection: false,
  enablePoisonousMessageProtection: false,
  messageCleanupIntervalInMs: 0,
};

/**
 * Its polling listener, ordered by segment (our aggregate). Faster than as it comes: larger batches, more connections,
 * and without the protections that its documentation says an outbox can do without.
 */
export const pgTransactionalOutboxPolling: Contender = {
  ...shared,
  name: 'pg-transactional-outbox-polling',
  settings: { batchSize: 25, poolSize: 25, pollingIntervalMs: 10 },
  claimStatement: /next_outbox_messages/i,
  limits: { events: 2_000 },
  prepare: (target) => setUp(target, 'polling'),
  async start({ connectionString, settings }, onEvent) {
    const { initializePollingMessageListener, getDisabledLogger } = await load();
    const [stop] = initializePollingMessageListener(
      {
        outboxOrInbox: 'outbox',
        dbListenerConfig: { connectionString, max: settings.poolSize },
        settings: {
          ...listenerSettings,
          nextMessagesFunctionName: 'next_outbox_messages',
          nextMessagesBatchSize: settings.batchSize,
          nextMessagesPollingIntervalInMs: settings.pollingIntervalMs,
        },
      },
      { handle: async (message) => onEvent(message.id, message) },
      getDisabledLogger(),
    );
    return { stop };
  },
};

/** Its replication listener, one message of a segment at a time, other segments beside it. */
export const pgTransactionalOutboxReplication: Contender = {
  ...shared,
  name: 'pg-transactional-outbox-replication',
  settings: { poolSize: 25 },
  claimStatement: /^START_REPLICATION/i,
  // A slot has one reader.
  limits: { events: 5_000, processes: 1 },
  serverSettings: { wal_level: 'logical' },
  prepare: (target) => setUp(target, 'replication'),
  async start({ connectionString, settings }, onEvent) {
    const {
      initializeReplicationMessageListener,
      createReplicationSegmentMutexConcurrencyController,
      getDisabledLogger,
    } = await load();
    const [stop] = initializeReplicationMessageListener(
      {
        outboxOrInbox: 'outbox',
        dbListenerConfig: { connectionString, max: settings.poolSize },
        settings: { ...listenerSettings, dbPublication: 'bench_outbox', dbReplicationSlot: slotOf(connectionString) },
      },
      { handle: async (message) => onEvent(message.id, message) },
      getDisabledLogger(),
      { concurrencyStrategy: createReplicationSegmentMutexConcurrencyController() },
    );
    return { stop };
  },
};
