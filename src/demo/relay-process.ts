// One relay in its own process, so that the demo can kill it. The parent controls it with IPC messages.
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

/** A message from a relay to its parent. */
export type RelayMessage =
  | { kind: 'started'; token: string }
  | { kind: 'failed'; error: string }
  | { kind: 'takenOver'; count: number }
  | {
      kind: 'tick';
      delivered: number;
      failed: number;
      deadLettered: number;
      inFlight: number;
      /** Commit to handler, for first attempts since the last tick. */
      latenciesMs: number[];
    };

/** Short, so that the takeover happens soon. Services should keep the default of 30 s. */
const leaseMs = 1_500;
const tickMs = 100;
const latenciesPerTickMax = 1_000;
/** Five attempts within 1.5 s, so that the demo shows a dead letter. */
const retry = { delaysMs: [100, 200, 400, 800] };

// A terminal sends SIGINT and SIGHUP to all of its processes. Here the parent decides when to stop.
process.on('SIGINT', () => {}).on('SIGHUP', () => {});
// Without its parent nothing would stop this process.
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
    logger: false, // The failures of the demo are part of it, and its screen shows them.
  });
  relay.on('claimed', ({ takenOver }) => {
    if (takenOver > 0) send({ kind: 'takenOver', count: takenOver });
  });
  const tick = (then?: () => void) => {
    const { delivered, failed, deadLettered, inFlight } = relay.stats();
    send({ kind: 'tick', delivered, failed, deadLettered, inFlight, latenciesMs }, then);
    latenciesMs = [];
  };
  try {
    await relay.start();
  } catch (error) {
    send({ kind: 'failed', error: error instanceof Error ? error.message : String(error) }, () => process.exit(1));
    return;
  }
  send({ kind: 'started', token: relay.stats().token ?? '' });
  const ticking = setInterval(() => tick(), tickMs);
  process.once('message', async () => {
    clearInterval(ticking);
    await relay.stop();
    await pool.end();
    tick(() => process.exit());
  });
}

function send(message: RelayMessage, then: () => void = () => {}): void {
  // If the parent has ended, 'disconnect' ends this process.
  process.send?.(message, undefined, undefined, then);
}
