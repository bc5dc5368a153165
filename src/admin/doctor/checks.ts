import type { Executor } from '../../database/executor.ts';
import { readMigrations, readRoutines } from '../../database/migrations.ts';
import { readSchemaCreators } from '../../database/schema-creators.ts';
import { probeSession } from '../../database/session-probe.ts';
import { examineIndexes } from '../../outbox/examining/examine-indexes.ts';
import { examineLocks } from '../../outbox/examining/examine-locks.ts';
import { examineMigrations, examineRoutines } from '../../outbox/examining/examine-migrations.ts';
import { examineOrphans } from '../../outbox/examining/examine-orphans.ts';
import { examineRights } from '../../outbox/examining/examine-rights.ts';
import { examineRowSecurity } from '../../outbox/examining/examine-row-security.ts';
import { examineSequence } from '../../outbox/examining/examine-sequence.ts';
import { examineServer } from '../../outbox/examining/examine-server.ts';
import { examineSlots } from '../../outbox/examining/examine-slots.ts';
import { examineSnapshots } from '../../outbox/examining/examine-snapshots.ts';
import { examineTables } from '../../outbox/examining/examine-tables.ts';
import { examineTriggers } from '../../outbox/examining/examine-triggers.ts';
import { listPartitions } from '../../outbox/maintaining/list-partitions.ts';
import { count } from '../../outbox/operating/count.ts';
import { listDestinations } from '../../outbox/operating/list-destinations.ts';
import { listMaintenance } from '../../outbox/operating/list-maintenance.ts';
import { listMissingTargets } from '../../outbox/operating/list-missing-targets.ts';
import { listRelays } from '../../outbox/operating/list-relays.ts';
import type { Judgement } from './finding.ts';
import { judgeIndexes } from './judge-indexes.ts';
import { judgeLocks } from './judge-locks.ts';
import { judgeMaintenance } from './judge-maintenance.ts';
import { judgeMigrations } from './judge-migrations.ts';
import { judgeOrphans } from './judge-orphans.ts';
import { judgePartitions } from './judge-partitions.ts';
import { judgeRelays } from './judge-relays.ts';
import { judgeRights, judgeSchemaCreators } from './judge-rights.ts';
import { judgeRowSecurity } from './judge-row-security.ts';
import { judgeSequence } from './judge-sequence.ts';
import { judgeClock, judgeConnections, judgePooler, judgeServer, judgeSettings } from './judge-server.ts';
import { judgeSlots, judgeSnapshots } from './judge-snapshots.ts';
import { judgeAutovacuum, judgeBloat } from './judge-tables.ts';
import { judgeTriggers } from './judge-triggers.ts';
import { judgeBacklog, judgeDeadLetters, judgeDestinations } from './judge-work.ts';
import type { DoctorLimits } from './limits.ts';

/** Whom to examine. */
export interface Patient {
  db: Executor;
  schema: string;
  limits: DoctorLimits;
  /** To find out what lies between this process and PostgreSQL. */
  connectionString?: string;
}

type Check = (patient: Patient) => Promise<Judgement[]>;

/** Every check by its name: gathers facts, which takes SQL, and judges them, which does not. */
export const checks = {
  server: async ({ db }) => judgeServer(await examineServer(db)),
  settings: async ({ db }) => judgeSettings(await examineServer(db)),
  connections: async ({ db }) => judgeConnections(await examineServer(db)),
  clock: async ({ db }) => {
    await examineServer(db); // The first answer may have to wait for a connection.
    const asked = Date.now();
    const { nowMs } = await examineServer(db);
    return judgeClock(nowMs, { asked, answered: Date.now() });
  },
  pooler: async ({ connectionString }) =>
    judgePooler(connectionString === undefined ? undefined : await probeSession(connectionString)),
  migrations: async ({ db, schema }) =>
    judgeMigrations(
      { migrations: readMigrations(), routines: readRoutines() },
      { migrations: await examineMigrations(db, schema), routines: await examineRoutines(db, schema) },
    ),
  rights: async ({ db, schema }) => [
    ...judgeRights(await examineRights(db, schema)),
    ...judgeSchemaCreators(schema, await readSchemaCreators(db, schema)),
  ],
  'row-security': async ({ db, schema }) => judgeRowSecurity(await examineRowSecurity(db, schema)),
  triggers: async ({ db, schema }) => judgeTriggers(schema, await examineTriggers(db, schema)),
  sequence: async ({ db, schema }) => judgeSequence(await examineSequence(db, schema)),
  indexes: async ({ db, schema }) =>
    judgeIndexes(schema, await examineTables(db, schema), await examineIndexes(db, schema)),
  autovacuum: async ({ db, schema }) => judgeAutovacuum(schema, await examineTables(db, schema)),
  bloat: async ({ db, schema, limits }) => {
    const facts = { tables: await examineTables(db, schema), indexes: await examineIndexes(db, schema) };
    return judgeBloat(schema, facts, limits);
  },
  snapshots: async ({ db, schema, limits }) => {
    const { currentRole } = await examineRights(db, schema);
    return judgeSnapshots(await examineSnapshots(db), limits, currentRole);
  },
  locks: async ({ db, schema, limits }) => judgeLocks(await examineLocks(db, schema), limits),
  slots: async ({ db, limits }) => judgeSlots(await examineSlots(db), limits),
  backlog: async ({ db, schema, limits }) => judgeBacklog(await count(db, schema), limits),
  relays: async ({ db, schema }) =>
    judgeRelays(await listRelays(db, schema), await count(db, schema), await listMissingTargets(db, schema)),
  destinations: async ({ db, schema }) => {
    const alive = (await listRelays(db, schema)).filter(({ state }) => state === 'alive');
    return judgeDestinations(await listDestinations(db, schema), alive.length);
  },
  orphans: async ({ db, schema }) => judgeOrphans(await examineOrphans(db, schema)),
  'dead-letters': async ({ db, schema }) => judgeDeadLetters(await count(db, schema)),
  partitions: async ({ db, schema }) => {
    const { nowMs } = await examineServer(db);
    return judgePartitions(schema, await listPartitions(db, schema), nowMs);
  },
  maintenance: async ({ db, schema }) => {
    const { nowMs } = await examineServer(db);
    return judgeMaintenance(await listMaintenance(db, schema), await listRelays(db, schema), nowMs);
  },
} satisfies Record<string, Check>;

export type CheckName = keyof typeof checks;

export const checkNames = Object.keys(checks) as CheckName[];

/** Checks that make sense where there is no outbox yet. */
export const withoutTables: readonly CheckName[] = [
  'server',
  'settings',
  'connections',
  'clock',
  'pooler',
  'migrations',
  'slots',
];
