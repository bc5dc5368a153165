import pg from 'pg';
import { fromPg } from '../../src/adapters/pg.ts';
import { createDashboard } from '../../src/dashboard/dashboard.ts';
import { OverviewReader } from '../../src/dashboard/overview.ts';
import { migrate } from '../../src/database/migrate.ts';
import { createOutbox } from '../../src/emit/outbox.ts';
import { machine } from '../machine.ts';
import { median } from '../ratio.ts';
import { compare, type Measurement, percentile } from '../report.ts';
import { insertDeliveredWithoutIndexes } from '../scale/history.ts';
import { counted } from '../scale/scenes.ts';
import { type Server, startServer } from '../server.ts';
import type { BenchOptions, Suite } from './suite.ts';

const defaults = { delivered: 10_000_000, baseline: 1_000, calls: 30 };
/** Checkpoints in the middle of the fill would write its pages twice. */
const fillSettings = { max_wal_size: '8GB', checkpoint_timeout: '1h' };
const databaseName = `postcommit_bench_${process.pid}_dashboard`;

interface Place {
  name: string;
  events: number;
  pool: pg.Pool;
  /** What is measured, by name. */
  calls: Record<string, () => Promise<void>>;
}

/** Whether the pages of the dashboard stay fast beside a long history. */
export const dashboard: Suite = {
  name: 'dashboard',
  summary: 'the overview and searches beside ten million delivered events, against a thousand',
  names: ['dashboard'],
  settings: defaults,

  async run(options) {
    const sizes = { ...defaults, ...options.overrides.dashboard };
    const server = await startServer(options.databaseUrl, options.databaseUrl ? {} : fillSettings);
    const places: Place[] = [];
    try {
      for (const events of [sizes.baseline, sizes.delivered]) {
        const name = counted(events, 'delivered events');
        console.error(`  preparing ${name} ...`);
        places.push(await prepare(server, name, events));
      }
      return await measure(places, sizes.calls, server, options);
    } finally {
      for (const { pool } of places) await pool.end();
      for (const index of [0, 1]) await server.dropDatabase(`${databaseName}_${index}`);
      await server.stop();
    }
  },
};

let prepared = 0;

async function prepare(server: Server, name: string, events: number): Promise<Place> {
  const connectionString = await server.createDatabase(`${databaseName}_${prepared++}`);
  await migrate({ connectionString });
  const db = new pg.Client({ connectionString });
  await db.connect();
  await insertDeliveredWithoutIndexes(db, events);
  await db.query('vacuum (analyze)');
  const { rows } = await db.query(
    'select id, aggregate_id from postcommit.outbox_events order by seq desc offset 500 limit 1',
  );
  await db.end();
  const pool = new pg.Pool({ connectionString, max: 2 });
  // Dropping the database ends connections that have not closed yet. Without a listener that would end this process.
  pool.on('error', () => {});
  const { admin } = createOutbox({ db: fromPg(pool) });
  const { fetch } = createDashboard({ outboxes: { shop: admin }, open: true });
  const overview = new OverviewReader(admin);
  const send = async (path: string, body?: object) => {
    const request = new Request(`http://localhost/api/shop/${path}`, {
      method: body ? 'POST' : 'GET',
      headers: { 'x-postcommit-dashboard': '1' },
      ...(body && { body: JSON.stringify(body) }),
    });
    const response = await fetch(request);
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    await response.arrayBuffer();
  };
  return {
    name,
    events,
    pool,
    calls: {
      overview: async () => void (await overview.read()),
      'newest events': () => send('search', {}),
      'search by type': () => send('search', { type: 'delivered' }),
      'search by type that is not there': () => send('search', { type: 'none' }),
      'search of delivered events': () => send('search', { status: 'SENT' }),
      'search of dead letters': () => send('search', { status: 'FAILED' }),
      'search by aggregate': () => send('search', { aggregate: ['order', rows[0].aggregate_id] }),
      'story of an event': () => send(`events/${rows[0].id}`),
      'groups of dead letters': () => send('dead-letters/groups'),
    },
  };
}

/** One call here, one there, so that both see the same machine. */
async function measure(
  [baseline, history]: readonly Place[],
  calls: number,
  server: Server,
  options: BenchOptions,
): Promise<Measurement[]> {
  if (!baseline || !history) throw new Error('Two outboxes are compared.');
  const measurements: Measurement[] = [];
  for (const name of Object.keys(baseline.calls)) {
    const rounds = new Map([baseline, history].map((place): [Place, number[]] => [place, []]));
    for (let round = 0; round < options.rounds; round++) {
      const took = new Map([baseline, history].map((place): [Place, number[]] => [place, []]));
      for (let call = 0; call < calls; call++) {
        options.interrupted.throwIfAborted();
        for (const place of [baseline, history]) took.get(place)?.push(await timed(place.calls[name]));
      }
      for (const [place, times] of took) rounds.get(place)?.push(percentile(times, 0.5));
    }
    const figure = (place: Place): Measurement => ({
      suite: 'dashboard',
      name: `${name} beside ${place.name}`,
      value: median(rounds.get(place) ?? []),
      unit: 'ms',
      rounds: rounds.get(place) ?? [],
      versions: { node: process.version, postgres: server.version },
      settings: { calls, rounds: options.rounds, ...machine() },
    });
    const [base, beside] = [figure(baseline), figure(history)];
    measurements.push(base, beside, compare(beside, base, { atMost: 2 }));
  }
  return measurements;
}

async function timed(call: (() => Promise<void>) | undefined): Promise<number> {
  const startedAtMs = performance.now();
  await call?.();
  return performance.now() - startedAtMs;
}
