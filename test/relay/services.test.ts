import { hostname } from 'node:os';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { resolveConnection } from '../../src/database/connection-options.ts';
import type { ArrayQuery } from '../../src/database/executor.ts';
import { CancelWatch } from '../../src/relay/cancel/cancel-watch.ts';
import { resolveDestinations } from '../../src/relay/deliver/destinations/destination-options.ts';
import { DestinationRefresher } from '../../src/relay/deliver/destinations/destination-refresher.ts';
import { DestinationSet } from '../../src/relay/deliver/destinations/destination-set.ts';
import { ClaimHistory } from '../../src/relay/lane/claim-history.ts';
import { ClaimTurn } from '../../src/relay/lane/claim-turn.ts';
import { EventBuffer } from '../../src/relay/lane/event-buffer.ts';
import { PollingLane } from '../../src/relay/lane/polling-lane.ts';
import { HeartbeatThread } from '../../src/relay/lease/heartbeat-thread.ts';
import { Lease } from '../../src/relay/lease/lease.ts';
import { LeaseState } from '../../src/relay/lease/lease-state.ts';
import { Maintenance } from '../../src/relay/maintenance/maintenance.ts';
import { resolveMaintenance } from '../../src/relay/maintenance/maintenance-options.ts';
import { ParkedEventSweeper } from '../../src/relay/maintenance/parked-event-sweeper.ts';
import { resolveOptions } from '../../src/relay/options.ts';
import { ProgressWriter } from '../../src/relay/progress/progress-writer.ts';
import { createRelay } from '../../src/relay/relay.ts';
import { RelayConnections } from '../../src/relay/relay-connections.ts';
import { resolveSchedules } from '../../src/relay/schedules/schedule-options.ts';
import { Scheduler } from '../../src/relay/schedules/scheduler.ts';
import type { Service } from '../../src/relay/service/service.ts';
import { RelaySession } from '../../src/relay/session.ts';
import { newCounters } from '../../src/relay/telemetry/counters.ts';
import { Lifecycle } from '../../src/relay/telemetry/lifecycle.ts';
import { Doorbell } from '../../src/relay/wake/doorbell.ts';
import { silentLogger } from '../../src/telemetry/logging.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const schema = 'postcommit';
const leaseMs = 300;
const common = { schema, leaseMs, logger: silentLogger, lifecycle: new Lifecycle(), name: 'stress' };
const nothing = () => {};
const silentDoorbell = { attach: async () => {}, detach: nothing, proven: false };

let db: TestDatabase;
let publishers: ScriptedPublisher[];

/** One connection that stays: the sockets of a pool that grows would count as leaks. */
let pool: pg.Pool;

beforeAll(async () => {
  db = await createTestDatabase();
  pool = new pg.Pool({ connectionString: db.url, max: 1, idleTimeoutMillis: 0 });
});
afterAll(async () => {
  await pool.end();
  await db.close();
});

const queryArrays: ArrayQuery = async (text, values) => pool.query({ text, values, rowMode: 'array' });

function doorbell(): Doorbell {
  return new Doorbell({
    ...common,
    listen: true,
    pollIntervalMs: 10,
    onNotificationsLost: nothing,
    isBusy: () => false,
  });
}

function lane(): PollingLane {
  const none = () => 0;
  const buffer = new EventBuffer({ eventsMin: 10, eventsMax: 10, bytesMax: 1e6, stuck: none, abandoned: none });
  const slowKeys = {
    excludedKeys: () => [],
    wantsMore: () => false,
    failed: nothing,
    recovered: nothing,
    undeferAll: async () => {},
  };
  return new PollingLane({
    ...common,
    db: { query: (text, values) => pool.query(text, values), queryArrays, connections: 1, sessionPid: undefined },
    doorbell: doorbell().bell('default'),
    queue: 'default',
    turn: new ClaimTurn(),
    knownSeqs: () => [],
    onKeyFreed: nothing,
    batchSizeMax: 10,
    buffer,
    history: new ClaimHistory(),
    slowKeys,
    dispatcher: { accept: nothing, releaseExcess: () => new Set() },
    token: () => '1',
    isCurrent: () => false,
    targets: () => [],
    onClaimed: nothing,
    onRefused: nothing,
  });
}

function destinations(): DestinationSet {
  const publisher = new ScriptedPublisher();
  publishers.push(publisher);
  return new DestinationSet({
    ...common,
    settings: resolveDestinations({ events: publisher }, new Set()),
    hasHandlers: false,
    db: pool,
    shelfDb: pool,
    bufferTarget: () => 10,
    onUnshelved: nothing,
  });
}

/** With a report on its way to the database. */
function progress(): ProgressWriter {
  const writer = new ProgressWriter({ ...common, db: pool, token: () => '1' });
  writer.changed({ seq: '1', handler: 'a', attempt: 1, fraction: 0.5, note: undefined });
  return writer;
}

function cancels(): CancelWatch {
  return new CancelWatch({
    ...common,
    db: pool,
    token: () => '1',
    isListening: () => false,
    claimed: () => [],
    claims: () => ({ begun: 0, ended: 0 }),
    abort: nothing,
    onEnded: nothing,
  });
}

const relayOptions = () => ({
  connectionString: db.url,
  name: 'stress',
  leaseMs,
  handlers: { a: { b: nothing } },
  destinations: { events: new ScriptedPublisher() },
});

const servers = () => resolveConnection({ connectionString: db.url });

const services: [name: string, make: () => Service][] = [
  ['the doorbell', doorbell],
  ['the connections', () => new RelayConnections({ ...common, servers: servers(), doorbell: silentDoorbell })],
  [
    'the lease',
    () =>
      new Lease({
        ...common,
        db: pool,
        relay: { name: 'stress', host: hostname(), pid: process.pid },
        heartbeat: { keepAlive: async () => {}, drop: nothing },
        leaseState: new LeaseState(),
        isStopping: () => false,
        onRegistered: nothing,
        onLost: async () => {},
        onOverdue: nothing,
        onBeat: async () => {},
      }),
  ],
  ...[true, false].map((heartbeatThread): [string, () => Service] => [
    `the heartbeat, on a thread: ${heartbeatThread}`,
    () =>
      new HeartbeatThread({
        ...common,
        heartbeatThread,
        blockedMaxMs: 60_000,
        servers: servers(),
        sessionLock: true,
        hostId: undefined,
        leaseState: new LeaseState(),
        stats: () => ({}),
        onLost: nothing,
        onRelayLost: nothing,
        onDisconnected: nothing,
      }),
  ]),
  ['the polling lane', lane],
  ['the progress writer', progress],
  ['the watch for cancelled events', cancels],
  ['the sweeper of parked events', () => new ParkedEventSweeper({ ...common, db: pool, onUnparked: nothing })],
  ['the destinations', destinations],
  ['the destination refresher', () => new DestinationRefresher({ ...common, destinations: destinations() })],
  [
    'the scheduler',
    () =>
      new Scheduler({
        ...common,
        relay: 'stress',
        servers: servers(),
        schedules: resolveSchedules({ fast: { cron: '* * * * * *', event: { type: 'a', payload: null } } }),
        control: pool,
        db: pool,
        token: () => '1',
      }),
  ],
  [
    'maintenance',
    () =>
      new Maintenance({
        ...common,
        relay: 'stress',
        servers: servers(),
        options: resolveMaintenance({ intervalMs: 100 }) as NonNullable<ReturnType<typeof resolveMaintenance>>,
        control: pool,
        token: () => '1',
      }),
  ],
  ['a session', () => new RelaySession(resolveOptions(relayOptions()), new Lifecycle(), newCounters())],
  ['a relay', () => createRelay(relayOptions())],
];

/** Each ends with `stop()`. A `start()` that is interrupted, or comes after `stop()`, may fail. */
const ways: Record<string, (make: () => Service) => Promise<unknown>> = {
  'started and stopped': async (make) => {
    const service = make();
    await service.start();
    await service.stop();
  },
  'started and stopped again and again': async (make) => {
    for (let round = 0; round < 5; round++) {
      const service = make();
      await service.start();
      await service.stop();
    }
  },
  'stopped without a start': (make) => make().stop(),
  'started twice': async (make) => {
    const service = make();
    await Promise.all([service.start(), service.start()]);
    await service.stop();
  },
  'stopped twice': async (make) => {
    const service = make();
    await service.start();
    await Promise.all([service.stop(), service.stop()]);
    await service.stop();
  },
  'stopped while it starts': async (make) => {
    const service = make();
    const started = service.start().catch(nothing);
    await service.stop();
    await started;
  },
  'started after a stop': async (make) => {
    const service = make();
    await service.stop();
    await service.start().catch(nothing);
    await service.stop();
  },
};

describe.each(services)('%s', (_name, make) => {
  test.each(Object.keys(ways))('%s leaves nothing running', async (way) => {
    publishers = [];
    await pool.query('select 1');
    const before = running();
    await ways[way]?.(make);
    await until(async () => (await connections()) === 0, { what: 'its connections are closed' });
    await until(() => running() <= before, { what: 'its timers and sockets are gone' });
    for (const publisher of publishers) expect(publisher.closes).toBeGreaterThanOrEqual(publisher.connects);
    const { rows } = await pool.query('select name from postcommit.outbox_relays where ended_at is null');
    expect(rows).toEqual([]);
  });
});

/** Timers and sockets that keep this process alive. */
function running(): number {
  const kinds = new Set(['Timeout', 'Immediate', 'TCPSocketWrap', 'TCPConnectWrap']);
  return process.getActiveResourcesInfo().filter((kind) => kinds.has(kind)).length;
}

/** The services' own connections; those of the test's pool have another name. */
async function connections(): Promise<number> {
  const { rows } = await pool.query(
    `select count(*)::integer as count from pg_stat_activity where datname = current_database() and application_name like 'postcommit %'`,
  );
  return rows[0].count;
}
