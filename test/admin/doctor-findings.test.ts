import { describe, expect, it } from 'vitest';
import { deadLetterFindings, destinationFindings } from '../../src/admin/doctor/delivery-findings.ts';
import { severityOver, worstOf } from '../../src/admin/doctor/finding.ts';
import { inboxFindings } from '../../src/admin/doctor/inbox-findings.ts';
import { lockFindings } from '../../src/admin/doctor/lock-findings.ts';
import { maintenanceFindings } from '../../src/admin/doctor/maintenance-findings.ts';
import { migrationFindings } from '../../src/admin/doctor/migration-findings.ts';
import { partitionFindings } from '../../src/admin/doctor/partition-findings.ts';
import { queueFindings } from '../../src/admin/doctor/queue-findings.ts';
import { relayFindings } from '../../src/admin/doctor/relay-findings.ts';
import {
  clockFindings,
  connectionFindings,
  poolerFindings,
  serverFindings,
  settingFindings,
} from '../../src/admin/doctor/server-findings.ts';
import { slotFindings, snapshotFindings } from '../../src/admin/doctor/snapshot-findings.ts';
import { autovacuumFindings, bloatFindings } from '../../src/admin/doctor/table-findings.ts';
import { queryText } from '../../src/admin/query-text.ts';
import type { MaintenanceTaskInfo, OutboxCounts, RelayInfo } from '../../src/index.ts';
import type { IndexFacts } from '../../src/outbox/examining/examine-indexes.ts';
import type { ServerFacts } from '../../src/outbox/examining/examine-server.ts';
import type { SlotFacts } from '../../src/outbox/examining/examine-slots.ts';
import type { TableFacts } from '../../src/outbox/examining/examine-tables.ts';
import type { PartitionInfo, Partitioning } from '../../src/outbox/maintaining/list-partitions.ts';

const hour = 3_600_000;
const gib = 1_073_741_824;
const healthyServer: ServerFacts = {
  version: '18.4',
  versionNumber: 180_004,
  encoding: 'UTF8',
  standby: false,
  readOnly: false,
  connections: 10,
  connectionsReserved: 3,
  connectionsMax: 103,
  settings: {
    fsync: 'on',
    synchronous_commit: 'on',
    full_page_writes: 'on',
    autovacuum: 'on',
    track_counts: 'on',
    wal_level: 'replica',
    idle_in_transaction_session_timeout: '300000',
    default_transaction_isolation: 'read committed',
  },
  nowMs: 0,
};
const setting = (name: keyof ServerFacts['settings'], value: string) =>
  settingFindings({ ...healthyServer, settings: { ...healthyServer.settings, [name]: value } });

describe('findings about the server', () => {
  it.each([
    [{ versionNumber: 130_012, version: '13.12' }, 'critical'],
    [{ standby: true }, 'critical'],
    [{ readOnly: true }, 'warning'],
    [{ encoding: 'LATIN1' }, 'note'],
    [{ encoding: 'SQL_ASCII' }, 'critical'],
    [{}, 'ok'],
  ] as const)('%j is %s', (facts, severity) => {
    expect(serverFindings({ ...healthyServer, ...facts })).toMatchObject([{ severity }]);
  });

  it.each([
    ['fsync', 'off', 'critical'],
    ['full_page_writes', 'off', 'critical'],
    ['synchronous_commit', 'off', 'warning'],
    ['synchronous_commit', 'local', 'ok'],
    ['autovacuum', 'off', 'critical'],
    ['track_counts', 'off', 'critical'],
    ['idle_in_transaction_session_timeout', '0', 'note'],
  ] as const)('%s = %s is %s', (name, value, severity) => {
    const [worst] = setting(name, value);
    expect(worst?.severity).toBe(severity);
    if (severity !== 'ok') expect(worst?.fix).toContain(`alter system set ${name} = `);
  });

  it.each([
    [79, 'ok'],
    [80, 'warning'],
    [95, 'critical'],
  ])('%i of 100 connections is %s', (connections, severity) => {
    expect(connectionFindings({ ...healthyServer, connections })).toMatchObject([{ severity }]);
  });

  it('takes the time of the question and of the answer for the clock', () => {
    expect(clockFindings(1_500, { asked: 1_000, answered: 2_000 })).toMatchObject([{ severity: 'ok' }]);
    // A slow answer is no difference.
    expect(clockFindings(60_000, { asked: 1_000, answered: 61_000 })).toMatchObject([{ severity: 'ok' }]);
    expect(clockFindings(1_000, { asked: 61_000, answered: 62_000 })[0]?.what).toContain(
      '1 min ahead of the clock of the database',
    );
    expect(clockFindings(92_000, { asked: 1_000, answered: 2_000 })[0]?.what).toContain('1 min 30 s behind');
  });

  it('tells poolers apart', () => {
    const [session] = poolerFindings({ pooled: true, shared: false });
    expect(session).toMatchObject({ severity: 'ok', what: expect.stringContaining('connected through a pooler') });
    expect(poolerFindings({ pooled: true, shared: true })).toMatchObject([{ severity: 'note' }]);
  });
});

describe('findings about snapshots and slots', () => {
  const limits = { snapshotMsMax: 1_000, slotBytesMax: gib };
  const holders = [
    {
      kind: 'session',
      name: '17',
      role: 'bi',
      application: 'psql',
      state: 'active',
      query: 'select 1',
      xids: 9,
      ageMs: 2_000,
    },
    { kind: 'standby', name: '18', role: 'replicator', application: 'walreceiver', xids: 8, ageMs: 20_000 },
    { kind: 'prepared', name: "it's", role: 'app', xids: 7, ageMs: 5_000 },
    { kind: 'slot', name: 'physical_1', xids: 20_000_000 },
    { kind: 'slot', name: 'physical_2', xids: 5 },
    { kind: 'session', name: '19', xids: 5, ageMs: 10 },
  ] as const;

  it('says of each what it is and how to end it', () => {
    const found = snapshotFindings({ holders: [...holders], hidden: 2 }, limits, 'reader');
    expect(found.map(({ severity, fix }) => [severity, fix])).toEqual([
      ['warning', 'select pg_terminate_backend(17);'],
      ['critical', expect.stringContaining('hot_standby_feedback = off')],
      ['warning', expect.stringContaining("rollback prepared 'it''s';")],
      ['critical', expect.stringContaining("pg_drop_replication_slot('physical_1')")],
      ['note', 'grant pg_read_all_stats to "reader";'],
    ]);
    expect(found[0]?.what).toBe(
      'session 17 (role bi, application psql, active, query: select 1) has held a snapshot for 2 s, 9 transactions old',
    );
    expect(snapshotFindings({ holders: [], hidden: 0 }, limits, 'x')).toMatchObject([{ severity: 'ok' }]);
  });

  it('reports a lock that is held for long, that others wait for, or that it knows too little about', () => {
    const held = { kind: 'session', name: '20', role: 'job', waiters: 0, waitedMs: null } as const;
    const found = lockFindings(
      [
        { ...held, locks: ['gate', 'key'], ageMs: 500, waiters: 2, waitedMs: 1_500 },
        { ...held, kind: 'prepared', name: "it's", locks: ['gate'], ageMs: 700_000 },
        { ...held, locks: ['unshelve'], ageMs: null },
        { ...held, locks: ['gate'], ageMs: null },
        { ...held, locks: ['gate', 'key'], ageMs: 59_000, waiters: 1, waitedMs: 900 },
      ],
      { lockMsMax: 60_000 },
    );
    expect(found.map(({ severity, what, fix }) => [severity, what, fix])).toEqual([
      [
        'warning',
        'session 20 (role job) has held the advisory lock of an emit gate and an aggregate key for 500 ms; 2 sessions waiting for it, up to 1 s',
        'select pg_terminate_backend(20);',
      ],
      [
        'critical',
        "the prepared transaction 'it''s' of job has held the advisory lock of an emit gate for 11 min 40 s",
        expect.stringContaining("rollback prepared 'it''s';"),
      ],
      ['note', 'session 20 (role job) holds the advisory lock of unshelving', 'select pg_terminate_backend(20);'],
    ]);
    expect(lockFindings([], { lockMsMax: 60_000 })).toMatchObject([{ severity: 'ok' }]);
  });

  const slot: SlotFacts = {
    name: 's',
    type: 'logical',
    active: true,
    walStatus: 'reserved',
    retainedBytes: 1_000,
    lagBytes: 0,
    walKeepBytesMax: '50GB',
  };
  it.each([
    [{}, 'ok', /^1 replication slot$/],
    [{ retainedBytes: 2 * gib }, 'warning', /is behind: the server keeps 2 GiB/],
    [{ retainedBytes: 11 * gib }, 'critical', /is behind/],
    [{ active: false }, 'warning', /has no reader: the server keeps 1000 B/],
    [{ active: false, retainedBytes: 11 * gib }, 'critical', /has no reader/],
    [{ active: false, walStatus: 'lost', retainedBytes: null }, 'warning', /has lost its WAL/],
    [{ walKeepBytesMax: null }, 'note', /max_slot_wal_keep_size is not set/],
  ])('a slot with %j is %s', (facts, severity, what) => {
    expect(slotFindings([{ ...slot, ...facts }], limits)).toMatchObject([
      { severity, what: expect.stringMatching(what) },
    ]);
  });

  it('shows of a query what it is recognised by, and no literal', () => {
    expect(queryText(`alter role x\n  password 'hunter2'`)).toBe("alter role x password '…'");
    expect(queryText(`select E'it\\'s', 'it''s', $$body$$, $tag$ o'clock $tag$`)).toBe("select E'…', '…', $…$, $…$");
    expect(queryText(`select 'cut off in the midd`)).toBe("select '…'");
    expect(queryText('select $a$ cut off')).toBe('select $…$');
    expect(queryText(`select ${'x, '.repeat(100)}`)).toHaveLength(160);
  });
});

const table = (name: string, facts: Partial<TableFacts> = {}): TableFacts => ({
  name,
  partitionOf: null,
  partitioned: false,
  options: [],
  bytes: 8_192,
  liveRows: 0,
  deadRows: 0,
  changedSinceAnalyze: 0,
  vacuumedMsAgo: null,
  analyzedMsAgo: null,
  ...facts,
});

describe('findings about tables', () => {
  it('reports stale statistics, but not right after an analyze', () => {
    const stale = { changedSinceAnalyze: 300_000 };
    expect(autovacuumFindings('s', [table('outbox_events', stale)])).toMatchObject([
      { fix: 'analyze "s"."outbox_events";' },
    ]);
    expect(autovacuumFindings('s', [table('outbox_events', { ...stale, analyzedMsAgo: 60_000 })])).toMatchObject([
      { severity: 'ok' },
    ]);
  });

  it('reports unused space beyond some megabytes', () => {
    const index = (bytes: number, liveRows: number) =>
      ({ name: 'i', table: 'outbox_queue', bytes, liveRows }) as IndexFacts;
    const bloat = (bytes: number, liveRows: number) =>
      bloatFindings(
        's',
        { tables: [table('outbox_queue', { bytes, liveRows })], indexes: [index(bytes, liveRows)] },
        { deadRowsMax: 9 },
      );
    expect(bloat(60 * 1_048_576, 0)).toMatchObject([{ severity: 'ok' }]);
    expect(bloat(gib, 10_000_000)).toMatchObject([{ severity: 'ok' }]);
    expect(bloat(gib, 1_000)).toMatchObject([
      {
        severity: 'note',
        what: 'outbox_queue takes 1 GiB for 1,000 rows',
        fix: expect.stringContaining('vacuum full'),
      },
      { severity: 'note', fix: 'reindex index concurrently "s"."i";' },
    ]);
  });
});

describe('findings about migrations', () => {
  const known = [1, 2, 3].map((version) => ({ version, name: `000${version}`, checksum: `sum ${version}` }));
  it.each([
    [known, 'ok', /version 3: all migrations/],
    [known.slice(0, 2), 'critical', /have version 2; not applied yet: 0003/],
    [[], 'critical', /no outbox/],
    [
      [...known, { version: 4, name: '0004', checksum: '' }],
      'critical',
      /have version 4, newer than version 3 of this package/,
    ],
    [[{ version: 9, name: '0009_inbox', checksum: '' }], 'critical', /newer/],
    [[known[0], { ...known[1], checksum: 'other' }], 'critical', /migration 2 \(0002\) differs/],
    [[{ ...known[0], checksum: 'other' }, known[1]], 'critical', /before the first release/],
    [[1, 2, 3, 4].map((version) => ({ version, name: '', checksum: 'other' })), 'critical', /before the first release/],
  ])('%j', (applied, severity, what) => {
    const given = { migrations: applied as typeof known, routines: [] };
    expect(migrationFindings({ migrations: known, routines: [] }, given)).toMatchObject([
      { severity, what: expect.stringMatching(what) },
    ]);
  });
});

describe('findings about the work', () => {
  const counts = { pending: 0, processing: 0, waiting: 0, failed: 0, blocked: 0, exact: {} } as OutboxCounts;
  const relay = (facts: Partial<RelayInfo>) =>
    ({
      name: 'r',
      host: 'h',
      pid: 1,
      state: 'alive',
      targets: [] as string[],
      queues: ['default'],
      stats: {},
      ...facts,
    }) as RelayInfo;

  it('rates a missing relay by the work that is due', () => {
    expect(relayFindings([], counts)).toMatchObject([{ severity: 'note' }]);
    expect(relayFindings([], { ...counts, pending: 5, waiting: 5 })).toMatchObject([{ severity: 'note' }]);
    expect(relayFindings([], { ...counts, pending: 5, waiting: 4 })).toMatchObject([{ severity: 'critical' }]);
    expect(relayFindings([relay({ state: 'stopped' })], { ...counts, processing: 1 })).toMatchObject([
      { severity: 'critical' },
    ]);
  });

  it('names what relays differ in, and what no relay has', () => {
    const [current, old] = [
      relay({ name: 'new', version: '2.0.0', targets: ['hook', 'kafka', 'a:mail'], fingerprint: 'x' }),
      relay({ name: 'old', version: '1.0.0', targets: ['hook', 'a:mail'], fingerprint: 'y' }),
    ];
    expect(relayFindings([current, current], counts)).toMatchObject([{ severity: 'ok' }]);
    expect(relayFindings([current, old], counts)).toMatchObject([
      {
        severity: 'warning',
        what: 'the relay old does not have kafka, but other live relays do',
        fix: 'give all relays of these queues the same handlers and destinations, or stop old',
      },
      { severity: 'note', what: 'live relays run different versions: 2.0.0 (new), 1.0.0 (old)' },
    ]);
    // One that works other queues has handlers of its own.
    const other = { ...current, name: 'reports', targets: ['r:report'], queues: ['reports'] };
    expect(relayFindings([current, other], counts)).toMatchObject([{ severity: 'ok' }]);
    // One that has ended is no difference.
    expect(relayFindings([current, { ...old, state: 'stopped' }], counts)).toMatchObject([{ severity: 'ok' }]);
    expect(relayFindings([current, { ...current, fingerprint: 'z' }], counts)).toMatchObject([
      { severity: 'note', what: expect.stringContaining('different route, retry or poison settings') },
    ]);
    expect(relayFindings([current], counts, [{ target: 'a:stock', events: 2 }])).toMatchObject([
      {
        severity: 'warning',
        what: 'no live relay has a:stock, and 2 events in the queue are owed to it',
        fix: 'npx postcommit forget a:stock',
      },
    ]);
    // A handler may be registered for a pattern, which a shell would expand.
    expect(relayFindings([current], counts, [{ target: 'order.*:audit', events: 1 }])).toMatchObject([
      { fix: "npx postcommit forget 'order.*:audit'" },
    ]);
    const fixOf = (target: string) => relayFindings([current], counts, [{ target, events: 1 }])[0]?.fix;
    expect(fixOf("o'brien:audit")).toBe(String.raw`npx postcommit forget 'o'\''brien:audit'`);
    expect(fixOf('-x:audit')).toBe('npx postcommit forget -- -x:audit');
    expect(relayFindings([], counts, [{ target: 'a:stock', events: 2 }])).toMatchObject([{ severity: 'note' }]);
  });

  it('reports events that wait for a destination that no live relay has', () => {
    const gone = { name: 'kafka', state: 'up', waiting: 3, relays: 0 } as const;
    expect(destinationFindings([gone], 1)).toMatchObject([
      {
        severity: 'warning',
        what: 'no live relay has the destination kafka, and 3 events wait for it',
        fix: 'npx postcommit forget kafka',
      },
    ]);
    for (const [destination, alive] of [
      [gone, 0],
      [{ ...gone, waiting: 0 }, 1],
      [{ ...gone, relays: 1 }, 1],
    ] as const) {
      expect(destinationFindings([destination], alive)).toMatchObject([{ severity: 'ok' }]);
    }
  });

  it('reports a paused queue, and events of a queue that no live relay works', () => {
    const queue = {
      name: 'reports',
      state: 'active',
      ready: 2,
      inFlight: 0,
      waiting: 1,
      retrying: 0,
      relays: 0,
    } as const;
    expect(queueFindings([queue], 1)).toMatchObject([
      {
        severity: 'warning',
        what: 'no live relay works the queue reports, which has 3 undelivered events',
        fix: 'npx postcommit relay --queue reports=10',
      },
    ]);
    expect(queueFindings([{ ...queue, state: 'paused', reason: 'restore' }], 1)).toMatchObject([
      { severity: 'note', fix: 'npx postcommit queues resume reports' },
    ]);
    for (const [other, alive] of [
      [queue, 0],
      [{ ...queue, ready: 0, waiting: 0 }, 1],
      [{ ...queue, relays: 1 }, 1],
    ] as const) {
      expect(queueFindings([other], alive)).toMatchObject([{ severity: 'ok' }]);
    }
  });

  it('tells dead letters from the aggregates that they hold', () => {
    expect(deadLetterFindings({ ...counts, failed: 3, blocked: 2 })).toMatchObject([
      { what: 'about 3 unresolved dead letters' },
      { what: '2 aggregates blocked by a dead letter' },
    ]);
  });

  it('reports maintenance that no relay runs, that fails, or that makes no progress', () => {
    const now = 100 * hour;
    const at = (ms: number) => new Date(ms);
    const leader = { name: 'r', host: 'h', pid: 1, token: '1', epoch: '1', since: at(0) };
    const task = { task: 'prune', ranAt: at(now - 1_000), durationMs: 1, changed: 0, failures: 0 };
    const old = [relay({ startedAt: at(0) })];
    expect(maintenanceFindings({ leader, tasks: [task] }, old, now)).toMatchObject([{ severity: 'ok' }]);
    expect(maintenanceFindings({ tasks: [] }, [], now)).toMatchObject([{ severity: 'ok' }]);
    expect(maintenanceFindings({ tasks: [] }, [relay({ startedAt: at(now - 1_000) })], now)).toMatchObject([
      { severity: 'ok' },
    ]);
    expect(maintenanceFindings({ tasks: [task] }, old, now)).toMatchObject([
      { severity: 'warning', what: 'no relay does maintenance (1 relay alive)' },
    ]);
    expect(maintenanceFindings({ leader, tasks: [{ ...task, ranAt: at(now - 50 * hour) }] }, old, now)).toMatchObject([
      { severity: 'warning', what: expect.stringContaining('its last task ran 2 d 2 h ago') },
    ]);
    const denied = { ...task, error: 'permission denied for table x', failures: 3 };
    expect(maintenanceFindings({ leader, tasks: [denied] }, old, now)).toMatchObject([
      { severity: 'warning', what: expect.stringContaining('failed 3 times'), fix: expect.stringContaining('grants') },
    ]);
  });

  it('compares how long the inbox remembers with how long events can be replayed', () => {
    const day = 24 * hour;
    const run = (task: string, keepMs: number): MaintenanceTaskInfo => ({
      task,
      ranAt: new Date(0),
      durationMs: 1,
      changed: 0,
      failures: 0,
      keepMs,
    });
    const find = (oldestMs: number | null, ...tasks: MaintenanceTaskInfo[]) => inboxFindings({ oldestMs }, tasks);
    expect(find(null, run('prune', 30 * day), run('processed', day))).toMatchObject([{ severity: 'ok' }]);
    expect(find(day, run('prune', 30 * day), run('processed', 30 * day))).toMatchObject([{ severity: 'ok' }]);
    expect(find(day, run('prune', 30 * day), run('processed', 7 * day))).toMatchObject([
      {
        severity: 'warning',
        what: 'consumers remember processed events for 7 d, but events can be replayed for 30 d',
        fix: expect.stringContaining('keepProcessedMs'),
      },
    ]);
    expect(find(day, run('drop', Number.POSITIVE_INFINITY), run('processed', 7 * day))).toMatchObject([
      { severity: 'warning', what: expect.stringContaining('replayed for ever') },
    ]);
    expect(find(day, run('prune', day), run('processed', Number.POSITIVE_INFINITY))).toMatchObject([
      { severity: 'ok' },
    ]);
    // Skipped, or no relay at all.
    expect(find(29 * day, run('prune', 30 * day))).toMatchObject([{ severity: 'ok' }]);
    expect(find(31 * day, run('prune', 30 * day))).toMatchObject([{ severity: 'note' }]);
    expect(inboxFindings({ oldestMs: 31 * day }, undefined)).toMatchObject([
      { severity: 'note', fix: expect.stringContaining('inbox.prune()') },
    ]);
  });

  const part = (number: number, state: PartitionInfo['state'], openedMsAgo?: number): PartitionInfo => ({
    number,
    state,
    ...(openedMsAgo === undefined ? {} : { openedAt: new Date(1_000 * hour - openedMsAgo) }),
    events: 1,
    bytes: 1,
    undelivered: 0,
    unqueued: 0,
    deadLetters: 0,
  });
  const spares = [part(5, 'spare'), part(6, 'spare')];
  it.each<[string, Partial<Partitioning>, string, RegExp]>([
    ['a small log of one table', { unit: 'none' }, 'ok', /not partitioned/],
    ['a large one', { unit: 'none', bytes: 30 * gib }, 'note', /30 GiB/],
    ['as it should be', { partitions: [part(4, 'open', hour), ...spares] }, 'ok', /by day: 1 partition/],
    ['without spares', { partitions: [part(4, 'open', hour)] }, 'warning', /no spare partition/],
    ['not rotated', { partitions: [part(4, 'open', 49 * hour), ...spares] }, 'warning', /open for 2 d 1 h/],
    ['by month', { unit: 'month', partitions: [part(4, 'open', 49 * hour), ...spares] }, 'ok', /by month/],
    ['detached', { partitions: [part(3, 'detached'), part(4, 'open', hour), ...spares] }, 'warning', /3 is detached/],
    [
      'with events in the default partition',
      { partitions: [part(4, 'open', hour), ...spares], default: { bytes: 9_000, events: 7 } },
      'note',
      /about 7 events/,
    ],
  ])('partitions %s', (_name, facts, severity, what) => {
    const partitioning: Partitioning = { unit: 'day', partitions: [], bytes: 1, ...facts };
    expect(partitionFindings('s', partitioning, 1_000 * hour)).toMatchObject([
      { severity, what: expect.stringMatching(what) },
    ]);
  });
});

it('ten times over a limit is critical', () => {
  expect([5, 10, 11, 100, 101].map((value) => severityOver(value, 10))).toEqual([
    'ok',
    'ok',
    'warning',
    'warning',
    'critical',
  ]);
  expect(worstOf([])).toBe('ok');
  expect(worstOf([{ severity: 'note' }, { severity: 'warning' }, { severity: 'ok' }])).toBe('warning');
});
