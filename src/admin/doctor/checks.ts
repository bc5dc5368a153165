import type { ConnectionOptions } from '../../database/connection-options.ts';
import type { Executor } from '../../database/executor.ts';
import { readMigrations, readRoutines } from '../../database/migrations.ts';
import { readSchemaCreators } from '../../database/schema-creators.ts';
import { probeSession } from '../../database/session-probe.ts';
import { examineDuty } from '../../outbox/examining/examine-duty.ts';
import { examineInbox } from '../../outbox/examining/examine-inbox.ts';
import { examineIndexes } from '../../outbox/examining/examine-indexes.ts';
import { examineLocks } from '../../outbox/examining/examine-locks.ts';
import { examineMigrations, examineRoutines } from '../../outbox/examining/examine-migrations.ts';
import { examineRights } from '../../outbox/examining/examine-rights.ts';
import { examineRowSecurity } from '../../outbox/examining/examine-row-security.ts';
import { examineSequence } from '../../outbox/examining/examine-sequence.ts';
import { examineServer } from '../../outbox/examining/examine-server.ts';
import { examineSlots } from '../../outbox/examining/examine-slots.ts';
import { examineSnapshots } from '../../outbox/examining/examine-snapshots.ts';
import { examineTables } from '../../outbox/examining/examine-tables.ts';
import { examineTriggers } from '../../outbox/examining/examine-triggers.ts';
import { examineUnqueued } from '../../outbox/examining/examine-unqueued.ts';
import { listPartitions } from '../../outbox/maintaining/list-partitions.ts';
import { count } from '../../outbox/operating/count.ts';
import { listDestinations } from '../../outbox/operating/list-destinations.ts';
import { listMaintenance } from '../../outbox/operating/list-maintenance.ts';
import { listMissingTargets } from '../../outbox/operating/list-missing-targets.ts';
import { listQueues } from '../../outbox/operating/list-queues.ts';
import { listRelays } from '../../outbox/operating/list-relays.ts';
import { listSchedules } from '../../outbox/operating/list-schedules.ts';
import { listUnhandledTypes } from '../../outbox/operating/list-unhandled-types.ts';
import { backlogFindings, deadLetterFindings, destinationFindings } from './delivery-findings.ts';
import type { CheckFinding } from './finding.ts';
import { inboxFindings } from './inbox-findings.ts';
import { indexFindings } from './index-findings.ts';
import type { DoctorLimits } from './limits.ts';
import { lockFindings } from './lock-findings.ts';
import { maintenanceFindings } from './maintenance-findings.ts';
import { migrationFindings } from './migration-findings.ts';
import { partitionFindings } from './partition-findings.ts';
import { productionFindings } from './production-findings.ts';
import { queueFindings } from './queue-findings.ts';
import { relayFindings } from './relay-findings.ts';
import { rightsFindings, schemaCreatorFindings } from './rights-findings.ts';
import { rowSecurityFindings } from './row-security-findings.ts';
import { scheduleFindings } from './schedule-findings.ts';
import { sequenceFindings } from './sequence-findings.ts';
import {
  clockFindings,
  connectionFindings,
  poolerFindings,
  serverFindings,
  settingFindings,
} from './server-findings.ts';
import { slotFindings, snapshotFindings } from './snapshot-findings.ts';
import { autovacuumFindings, bloatFindings } from './table-findings.ts';
import { triggerFindings } from './trigger-findings.ts';
import { unqueuedFindings } from './unqueued-findings.ts';

/** What the checks look at. */
export interface CheckInput {
  db: Executor;
  schema: string;
  limits: DoctorLimits;
  /** Needed to find out whether a pooler is between this process and PostgreSQL. */
  connectTo?: ConnectionOptions;
}

type Check = (input: CheckInput) => Promise<CheckFinding[]>;

/** Every check by name. A check reads facts with SQL and turns them into findings without SQL. */
export const checks = {
  server: async ({ db }) => serverFindings(await examineServer(db)),
  settings: async ({ db }) => settingFindings(await examineServer(db)),
  connections: async ({ db }) => connectionFindings(await examineServer(db)),
  clock: async ({ db }) => {
    await examineServer(db); // The first query may wait for a connection.
    const asked = Date.now();
    const { nowMs } = await examineServer(db);
    return clockFindings(nowMs, { asked, answered: Date.now() });
  },
  pooler: async ({ connectTo }) => poolerFindings(connectTo && (await probeSession(connectTo))),
  migrations: async ({ db, schema }) =>
    migrationFindings(
      { migrations: readMigrations(), routines: readRoutines() },
      { migrations: await examineMigrations(db, schema), routines: await examineRoutines(db, schema) },
    ),
  rights: async ({ db, schema }) => [
    ...rightsFindings(await examineRights(db, schema)),
    ...schemaCreatorFindings(schema, await readSchemaCreators(db, schema)),
  ],
  'row-security': async ({ db, schema }) => rowSecurityFindings(await examineRowSecurity(db, schema)),
  triggers: async ({ db, schema }) => triggerFindings(schema, await examineTriggers(db, schema)),
  sequence: async ({ db, schema }) => sequenceFindings(await examineSequence(db, schema)),
  indexes: async ({ db, schema }) =>
    indexFindings(schema, await examineTables(db, schema), await examineIndexes(db, schema)),
  autovacuum: async ({ db, schema }) => autovacuumFindings(schema, await examineTables(db, schema)),
  bloat: async ({ db, schema, limits }) => {
    const facts = { tables: await examineTables(db, schema), indexes: await examineIndexes(db, schema) };
    return bloatFindings(schema, facts, limits);
  },
  snapshots: async ({ db, schema, limits }) => {
    const { currentRole } = await examineRights(db, schema);
    return snapshotFindings(await examineSnapshots(db), limits, currentRole);
  },
  locks: async ({ db, schema, limits }) => {
    // A role that may not read the queues still sees locks.
    const queues = await listQueues(db, schema).catch(() => undefined);
    const names = queues?.map(({ name }) => name);
    return lockFindings(await examineLocks(db, schema, names), limits);
  },
  slots: async ({ db, limits }) => slotFindings(await examineSlots(db), limits),
  backlog: async ({ db, schema, limits }) => backlogFindings(await count(db, schema), limits),
  relays: async ({ db, schema }) =>
    relayFindings(
      await listRelays(db, schema),
      await count(db, schema),
      await listMissingTargets(db, schema),
      await listUnhandledTypes(db, schema),
    ),
  queues: async ({ db, schema }) => {
    const alive = (await listRelays(db, schema)).filter(({ state }) => state === 'alive');
    return queueFindings(await listQueues(db, schema), alive.length);
  },
  destinations: async ({ db, schema }) => {
    const alive = (await listRelays(db, schema)).filter(({ state }) => state === 'alive');
    return destinationFindings(await listDestinations(db, schema), alive.length);
  },
  unqueued: async ({ db, schema }) => unqueuedFindings(await examineUnqueued(db, schema)),
  'dead-letters': async ({ db, schema }) => deadLetterFindings(await count(db, schema)),
  partitions: async ({ db, schema }) => {
    const { nowMs } = await examineServer(db);
    return partitionFindings(schema, await listPartitions(db, schema), nowMs);
  },
  maintenance: async ({ db, schema }) => {
    const { nowMs } = await examineServer(db);
    return maintenanceFindings(await listMaintenance(db, schema), await listRelays(db, schema), nowMs);
  },
  inbox: async ({ db, schema }) => {
    const facts = await examineInbox(db, schema);
    return inboxFindings(facts, facts.hasOutbox ? (await listMaintenance(db, schema)).tasks : undefined);
  },
  schedules: async ({ db, schema }) => scheduleFindings(await listSchedules(db, schema)),
  production: async ({ db, schema }) =>
    productionFindings({
      settings: (await examineServer(db)).settings,
      rights: await examineRights(db, schema),
      relays: await listRelays(db, schema),
      tasks: (await listMaintenance(db, schema)).tasks,
      measured: await examineDuty(db, schema, 'metrics'),
    }),
} satisfies Record<string, Check>;

export type CheckName = keyof typeof checks;

export const checkNames = Object.keys(checks) as CheckName[];

/** Not `production`: a test system may break each of its points. */
export const usualChecks: readonly CheckName[] = checkNames.filter((name) => name !== 'production');

/** Checks that work in a database without an outbox. */
export const withoutTables: readonly CheckName[] = [
  'server',
  'settings',
  'connections',
  'clock',
  'pooler',
  'migrations',
  'slots',
];

/** Checks that work in a database with an inbox and without an outbox. */
export const withInboxOnly: readonly CheckName[] = [...withoutTables, 'inbox'];
