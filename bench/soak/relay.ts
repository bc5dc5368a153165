// The relay of a soak, in a process of its own. Its argument is a RelayTask as JSON; it sends RelayNotes by IPC and stops
// when it is told to.
import { setTimeout as sleep } from 'node:timers/promises';
import { webhook } from '../../src/publishers/webhook.ts';
import { createRelay } from '../../src/relay/relay.ts';
import { jsonLogger } from '../../src/telemetry/logging.ts';
import { goesToWebhook, type SoakPayload } from './events.ts';
import type { MemorySample } from './memory.ts';

export interface RelayTask {
  connectionString: string;
  webhookUrl: string;
}

export type RelayNote =
  | { note: 'started' }
  | { note: 'handled'; aggregateId: string; n: number; isIntact: boolean }
  | { note: 'memory'; sample: MemorySample }
  | { note: 'stopped' };

const sampleEveryMs = 1_000;
/** One sample in so many follows a garbage collection. */
const gcEvery = 5;

const { connectionString, webhookUrl } = JSON.parse(process.argv[2] ?? '') as RelayTask;
const tell = (note: RelayNote) => void process.send?.(note);

const relay = createRelay({
  connectionString,
  name: 'soak',
  handlers: {
    soak: {
      handle: async (event) => {
        const { n, pad, padLength } = event.payload as SoakPayload;
        await sleep(5);
        tell({ note: 'handled', aggregateId: event.aggregate.id, n, isIntact: pad.length === padLength });
      },
    },
  },
  destinations: { hook: webhook({ url: webhookUrl, secret: null }) },
  route: (event) => (goesToWebhook(event.aggregate.id) ? { to: 'hook' } : null),
  // The log is kept short, or the disk would fill.
  maintenance: { keepEventsMs: 0, intervalMs: 10_000 },
  logger: jsonLogger((line) => process.stderr.write(line), 'warn'),
});

const startedAt = performance.now();
let samples = 0;
const sampling = setInterval(() => {
  const afterGc = ++samples % gcEvery === 0;
  if (afterGc) globalThis.gc?.();
  const { rss, heapUsed } = process.memoryUsage();
  tell({ note: 'memory', sample: { atMs: performance.now() - startedAt, rss, heapUsed, afterGc } });
}, sampleEveryMs);

process.on('message', async (message) => {
  if (message !== 'stop') return;
  clearInterval(sampling);
  await relay.stop();
  tell({ note: 'stopped' });
  process.disconnect();
});
await relay.start();
tell({ note: 'started' });
