import { describe, expect, it } from 'vitest';
import { severityOver, worstOf } from '../../src/admin/doctor/finding.ts';
import { judgeLocks } from '../../src/admin/doctor/judge-locks.ts';
import { judgeMaintenance } from '../../src/admin/doctor/judge-maintenance.ts';
import { judgeMigrations } from '../../src/admin/doctor/judge-migrations.ts';
import { judgePartitions } from '../../src/admin/doctor/judge-partitions.ts';
import { judgeRelays } from '../../src/admin/doctor/judge-relays.ts';
import {
  judgeClock,
  judgeConnections,
  judgePooler,
  judgeServer,
  judgeSettings,
} from '../../src/admin/doctor/judge-server.ts';
import { judgeSlots, judgeSnapshots } from '../../src/admin/doctor/judge-snapshots.ts';
import { judgeAutovacuum, judgeBloat } from '../../src/admin/doctor/judge-tables.ts';
import { judgeDeadLetters, judgeDestinations } from '../../src/admin/doctor/judge-work.ts';
import { queryText } from '../../src/admin/query-text.ts';
import type { OutboxCounts, RelayInfo } from '../../src/index.ts';
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
  judgeSettings({ ...healthyServer, settings: { ...healthyServer.settings, [name]: value } });

describe('judging the server', () => {
  it.each([
    [{ versionNumber: 130_012, version: '13.12' }, 'critical'],
    [{ standby: true }, 'critical'],
    [{ readOnly: true }, 'warning'],
    [{ encoding: 'LATIN1' }, 'note'],
    [{ encoding: 'SQL_ASCII' }, 'critical'],
    [{}, 'ok'],
  ] as const)('%j is %s', (facts, severity) => {
    expect(judgeServer({ ...healthyServer, ...facts })).toMatchObject([{ severity }]);
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
    expect(judgeConnections({ ...healthyServer, connections })).toMatchObject([{ severity }]);
  });

  it('takes the time of the question and of the answer for the clock', () => {
    expect(judgeClock(1_500, { asked: 1_000, answered: 2_000 })).toMatchObject([{ severity: 'ok' }]);
    // A slow answer is no difference.
    expect(judgeClock(60_000, { asked: 1_000, answered: 61_000 })).toMatchObject([{ severity: 'ok' }]);
    expect(judgeClock(1_000, { asked: 61_000, answered: 62_000 })[0]?.what).toContain("1 min ahead of the database's");
    expect(judgeClock(92_000, { asked: 1_000, answered: 2_000 })[0]?.what).toContain('1 min 30 s behind');
  });

  it('tells poolers apart', () => {
    const [session] = judgePooler({ pooled: true, shared: false });
    expect(session).toMatchObject({ severity: 'ok', what: expect.stringContaining('a pooler is in between') });
    expect(judgePooler({ pooled: true, shared: true })).toMatchObject([{ severity: 'note' }]);
  });
});

describe('judging snapshots and slots', () => {
  const limits = { snapshotMs: 1_000, slotBytes: gib };
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
    const found = judgeSnapshots({ holders: [...holders], hidden: 2 }, limits, 'reader');
    expect(found.map(({ severity, fix }) => [severity, fix])).toEqual([
      ['warning', 'select pg_terminate_backend(17);'],
      ['critical', expect.stringContaining('hot_standby_feedback = off')],
      ['warning', expect.stringContaining("rollback prepared 'it''s';")],
      ['critical', expect.stringContaining("pg_drop_replication_slot('physical_1')")],
      ['note', 'grant pg_read_all_stats to "reader";'],
    ]);
    expect(found[0]?.what).toBe(
      'session 17 (role bi, application psql, active, query: select 1) holds a snapshot since 2 s, 9 transactions old',
    );
    expect(judgeSnapshots({ holders: [], hidden: 0 }, limits, 'x')).toMatchObject([{ severity: 'ok' }]);
  });

  it('tells of a lock that is held for long, that others wait for, or of which it knows too little', () => {
    const held = { kind: 'session', name: '20', role: 'job', waiters: 0, waitedMs: null } as const;
    const found = judgeLocks(
      [
        { ...held, locks: ['gate', 'key'], ageMs: 500, waiters: 2, waitedMs: 1_500 },
        { ...held, kind: 'prepared', name: "it's", locks: ['gate'], ageMs: 700_000 },
        { ...held, locks: ['unshelve'], ageMs: null },
        { ...held, locks: ['gate'], ageMs: null },
        { ...held, locks: ['gate', 'key'], ageMs: 59_000, waiters: 1, waitedMs: 900 },
      ],
      { lockMs: 60_000 },
    );
    expect(found.map(({ severity, what, fix }) => [severity, what, fix])).toEqual([
      [
        'warning',
        'session 20 (role job) holds the advisory lock of a gate of the emitters and the key of an aggregate, since 500 ms; 2 sessions waiting for it, for up to 1 s',
        'select pg_terminate_backend(20);',
      ],
      [
        'critical',
        "the prepared transaction 'it''s' of job holds the advisory lock of a gate of the emitters, since 11 min 40 s",
        expect.stringContaining("rollback prepared 'it''s';"),
      ],
      ['note', 'session 20 (role job) holds the advisory lock of unshelving', 'select pg_terminate_backend(20);'],
    ]);
    expect(judgeLocks([], { lockMs: 60_000 })).toMatchObject([{ severity: 'ok' }]);
  });

  const slot: SlotFacts = {
    name: 's',
    type: 'logical',
    active: true,
    walStatus: 'reserved',
    retainedBytes: 1_000,
    walKeepBytesMax: '50GB',
  };
  it.each([
    [{}, 'ok', /^1 replication slot$/],
    [{ retainedBytes: 2 * gib }, 'warning', /is behind: the server keeps 2 GiB/],
    [{ retainedBytes: 11 * gib }, 'critical', /is behind/],
    [{ active: false }, 'warning', /is not read by anybody: the server keeps 1000 B/],
    [{ active: false, retainedBytes: 11 * gib }, 'critical', /not read by anybody/],
    [{ active: false, walStatus: 'lost', retainedBytes: null }, 'warning', /has lost its WAL/],
    [{ walKeepBytesMax: null }, 'note', /max_slot_wal_keep_size is not set/],
  ])('a slot with %j is %s', (facts, severity, what) => {
    expect(judgeSlots([{ ...slot, ...facts }], limits)).toMatchObject([
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

describe('judging tables', () => {
  it('minds stale statistics, but not right after an analyze', () => {
    const stale = { changedSinceAnalyze: 300_000 };
    expect(judgeAutovacuum('s', [table('outbox_events', stale)])).toMatchObject([
      { fix: 'analyze "s"."outbox_events";' },
    ]);
    expect(judgeAutovacuum('s', [table('outbox_events', { ...stale, analyzedMsAgo: 60_000 })])).toMatchObject([
      { severity: 'ok' },
    ]);
  });

  it('minds room that nothing is in, past some megabytes', () => {
    const index = (bytes: number, liveRows: number) =>
      ({ name: 'i', table: 'outbox_queue', bytes, liveRows }) as IndexFacts;
    const judge = (bytes: number, liveRows: number) =>
      judgeBloat(
        's',
        { tables: [table('outbox_queue', { bytes, liveRows })], indexes: [index(bytes, liveRows)] },
        { deadRows: 9 },
      );
    expect(judge(60 * 1_048_576, 0)).toMatchObject([{ severity: 'ok' }]);
    expect(judge(gib, 10_000_000)).toMatchObject([{ severity: 'ok' }]);
    expect(judge(gib, 1_000)).toMatchObject([
      {
        severity: 'note',
        what: 'outbox_queue takes 1 GiB for 1,000 rows',
        fix: expect.stringContaining('vacuum full'),
      },
      { severity: 'note', fix: 'reindex index concurrently "s"."i";' },
    ]);
  });
});

describe('judging migrations', () => {
  const known = [1, 2, 3].map((version) => ({ version, name: `000${version}`, checksum: `sum ${version}` }));
  it.each([
    [known, 'ok', /version 3: all migrations/],
    [known.slice(0, 2), 'critical', /at version 2, not applied: 0003/],
    [[], 'critical', /no outbox/],
    [[...known, { version: 4, name: '0004', checksum: '' }], 'critical', /at version 4, this package knows 3/],
    [[known[0], { ...known[1], checksum: 'other' }], 'critical', /migration 2 \(0002\) is not the one/],
    [[{ ...known[0], checksum: 'other' }, known[1]], 'critical', /before the first release/],
    [[1, 2, 3, 4].map((version) => ({ version, name: '', checksum: 'other' })), 'critical', /before the first release/],
  ])('%j', (applied, severity, what) => {
    const given = { migrations: applied as typeof known, routines: [] };
    expect(judgeMigrations({ migrations: known, routines: [] }, given)).toMatchObject([
      { severity, what: expect.stringMatching(what) },
    ]);
  });
});

describe('judging the work', () => {
  const counts = { pending: 0, processing: 0, waiting: 0, failed: 0, blocked: 0, exact: {} } as OutboxCounts;
  const relay = (facts: Partial<RelayInfo>) =>
    ({ name: 'r', host: 'h', pid: 1, state: 'alive', targets: [] as string[], ...facts }) as RelayInfo;

  it('minds that no relay is alive only as much as there is to do', () => {
    expect(judgeRelays([], counts)).toMatchObject([{ severity: 'note' }]);
    expect(judgeRelays([], { ...counts, pending: 5, waiting: 5 })).toMatchObject([{ severity: 'note' }]);
    expect(judgeRelays([], { ...counts, pending: 5, waiting: 4 })).toMatchObject([{ severity: 'critical' }]);
    expect(judgeRelays([relay({ state: 'stopped' })], { ...counts, processing: 1 })).toMatchObject([
      { severity: 'critical' },
    ]);
  });

  it('names what relays differ in, and what no relay has', () => {
    const [current, old] = [
      relay({ name: 'new', version: '2.0.0', targets: ['hook', 'kafka', 'a:mail'], fingerprint: 'x' }),
      relay({ name: 'old', version: '1.0.0', targets: ['hook', 'a:mail'], fingerprint: 'y' }),
    ];
    expect(judgeRelays([current, current], counts)).toMatchObject([{ severity: 'ok' }]);
    expect(judgeRelays([current, old], counts)).toMatchObject([
      { severity: 'warning', what: 'the relay old lacks kafka, which other living relays have' },
      { severity: 'note', what: 'living relays run different versions: 2.0.0 (new), 1.0.0 (old)' },
    ]);
    // One that has ended is no difference.
    expect(judgeRelays([current, { ...old, state: 'stopped' }], counts)).toMatchObject([{ severity: 'ok' }]);
    expect(judgeRelays([current, { ...current, fingerprint: 'z' }], counts)).toMatchObject([
      { severity: 'note', what: expect.stringContaining('differ in route, retry or poison settings') },
    ]);
    expect(judgeRelays([current], counts, [{ target: 'a:stock', events: 2 }])).toMatchObject([
      {
        severity: 'warning',
        what: 'no living relay has a:stock, and 2 events in the queue are owed to it',
        fix: 'postcommit forget a:stock',
      },
    ]);
    expect(judgeRelays([], counts, [{ target: 'a:stock', events: 2 }])).toMatchObject([{ severity: 'note' }]);
  });

  it('minds events that wait for a destination of no relay, while some relay is alive', () => {
    const gone = { name: 'kafka', state: 'up', waiting: 3, relays: 0 } as const;
    expect(judgeDestinations([gone], 1)).toMatchObject([
      {
        severity: 'warning',
        what: 'no living relay has the destination kafka, and 3 events wait for it',
        fix: 'postcommit forget kafka',
      },
    ]);
    for (const [destination, alive] of [
      [gone, 0],
      [{ ...gone, waiting: 0 }, 1],
      [{ ...gone, relays: 1 }, 1],
    ] as const) {
      expect(judgeDestinations([destination], alive)).toMatchObject([{ severity: 'ok' }]);
    }
  });

  it('tells dead letters from the aggregates that they hold', () => {
    expect(judgeDeadLetters({ ...counts, failed: 3, blocked: 2 })).toMatchObject([
      { what: 'about 3 dead letters to be decided on' },
      { what: '2 aggregates held back by a dead letter' },
    ]);
  });

  it('minds maintenance that nobody does, that fails, or that stands still', () => {
    const now = 100 * hour;
    const at = (ms: number) => new Date(ms);
    const leader = { name: 'r', host: 'h', pid: 1, token: '1', epoch: '1', since: at(0) };
    const task = { task: 'prune', ranAt: at(now - 1_000), durationMs: 1, changed: 0, failures: 0 };
    const old = [relay({ startedAt: at(0) })];
    expect(judgeMaintenance({ leader, tasks: [task] }, old, now)).toMatchObject([{ severity: 'ok' }]);
    expect(judgeMaintenance({ tasks: [] }, [], now)).toMatchObject([{ severity: 'ok' }]);
    expect(judgeMaintenance({ tasks: [] }, [relay({ startedAt: at(now - 1_000) })], now)).toMatchObject([
      { severity: 'ok' },
    ]);
    expect(judgeMaintenance({ tasks: [task] }, old, now)).toMatchObject([
      { severity: 'warning', what: '1 relay alive, and none does maintenance' },
    ]);
    expect(judgeMaintenance({ leader, tasks: [{ ...task, ranAt: at(now - 50 * hour) }] }, old, now)).toMatchObject([
      { severity: 'warning', what: expect.stringContaining('its last task ran 2 d 2 h ago') },
    ]);
    const denied = { ...task, error: 'permission denied for table x', failures: 3 };
    expect(judgeMaintenance({ leader, tasks: [denied] }, old, now)).toMatchObject([
      { severity: 'warning', what: expect.stringContaining('failed 3 times'), fix: expect.stringContaining('grants') },
    ]);
  });

  const part = (number: number, state: PartitionInfo['state'], openedMsAgo?: number): PartitionInfo => ({
    number,
    state,
    ...(openedMsAgo === undefined ? {} : { openedAt: new Date(1_000 * hour - openedMsAgo) }),
    events: 1,
    bytes: 1,
    undelivered: 0,
    orphans: 0,
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
    expect(judgePartitions('s', partitioning, 1_000 * hour)).toMatchObject([
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
