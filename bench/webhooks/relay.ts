// A relay with default options that sends each event to its customer. Answers by IPC what it did.
import { once } from 'node:events';

export interface RelayTask {
  connectionString: string;
}

export interface RelayReport {
  node: string;
  stats: { delivered: number; failed: number; released: number; unavailable: number };
}

const dist = (path: string) => import(new URL(`../../dist/${path}`, import.meta.url).href);

const { connectionString } = JSON.parse(process.argv[2] ?? '') as RelayTask;
const [{ createRelay }, { webhook }] = await Promise.all([dist('index.js'), dist('publishers/webhook.js')]);
const relay = createRelay({
  connectionString,
  stopTimeoutMs: 100, // What hangs at the end need not be waited for.
  destinations: {
    customers: webhook({
      secret: null,
      allowPrivateAddresses: true,
      // A thousand names on one address: each customer has a host of its own.
      lookup: (
        _name: string,
        { all }: { all?: boolean },
        callback: (error: null, address: unknown, family?: number) => void,
      ) => (all ? callback(null, [{ address: '127.0.0.1', family: 4 }]) : callback(null, '127.0.0.1', 4)),
    }),
  },
  route: ({ payload }: { payload: { url: string } }) => ({ to: 'customers', topic: payload.url }),
});
relay.on('destinationDown', ({ error }: { error: string }) => console.error(`webhooks are down: ${error}`));
await relay.start();
process.send?.({ note: 'ready' });
await once(process, 'message');
const { delivered, failed, released, unavailable } = relay.stats();
const report: RelayReport = { node: process.version, stats: { delivered, failed, released, unavailable } };
await relay.stop();
process.send?.(report, () => process.exit(0));
