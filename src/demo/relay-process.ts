// One relay in a process of its own, so that the demo can kill it. It is told what to do by its parent, over IPC.
import pg from 'pg';
import { createRelay } from '../relay/relay.ts';
import { orderHandlers } from './order-service-handlers.ts';
import type { DemoSchemas } from './order-service-tables.ts';

/** The first message from the parent. The second one, `'stop'`, ends the process. */
export interface RelayAssignment {
  name: string;
  connectionString: string;
  schemas: DemoSchemas;
}

/** What a relay tells its parent. */
export type RelayNews =
  | { kind: 'started'; token: string }
  | { kind: 'failed'; error: string }
  | { kind: 'tookOver'; count: number }
  | {
      kind: 'tick';
      delivered: number;
      failed: number;
      rejected: number;
      inFlight: number;
      /** Commit to handler, of the first attempts since the last tick. */
      latenciesMs: number[];
    };

/** Short, so that one need not wait long to see a takeover. A service keeps the default of 30 s. */
const leaseMs = 1_500;
const tickMs = 100;
const latenciesPerTickMax = 1_000;
/** Five attempts within a second and a half, so that a dead letter shows within the demo. */
const retry = { delaysMs: [100, 200, 400, 800] };

// Ctrl-C goes to every process of a terminal, and so does its end; here the parent decides when to stop.
process.on('SIGINT', () => {}).on('SIGHUP', () => {});
// Without a parent nobody would ever stop this process.
process.once('disconnect', () => process.exit());
process.once('message', (assignment: RelayAssignment) => void run(assignment));

async function run({ name, connectionString, schemas }: RelayAssignment): Promise<void> {
  const pool = new pg.Pool({ connectionString, max: 8 });
  pool.on('error', () => {}); // The next query reports it.
  let latenciesMs: number[] = [];
  const handlers = orderHandlers(pool, schemas, name, (latencyMs) => {
    if (latenciesMs.length < latenciesPerTickMax) latenciesMs.push(latencyMs);
  });
  const relay = createRelay({
    connectionString,
    schema: schemas.outbox,
    name,
    handlers,
    leaseMs,
    retry,
    inFlightMax: 50,
  });
  relay.on('claimed', ({ rescued }) => {
    if (rescued > 0) tell({ kind: 'tookOver', count: rescued });
  });
  const tick = (then?: () => void) => {
    const { delivered, failed, rejected, inFlight } = relay.stats();
    tell({ kind: 'tick', delivered, failed, rejected, inFlight, latenciesMs }, then);
    latenciesMs = [];
  };
  try {
    await relay.start();
  } catch (error) {
    tell({ kind: 'failed', error: error instanceof Error ? error.message : String(error) }, () => process.exit(1));
    return;
  }
  tell({ kind: 'started', token: relay.stats().token ?? '' });
  const ticking = setInterval(() => tick(), tickMs);
  process.once('message', async () => {
    clearInterval(ticking);
    await relay.stop();
    await pool.end();
    tick(() => process.exit());
  });
}

function tell(news: RelayNews, then: () => void = () => {}): void {
  // A parent that is gone cannot be told; 'disconnect' ends this process then.
  process.send?.(news, undefined, undefined, then);
}
