// A relay whose events a consumer processes, in a process of its own, for tests that kill both. Arguments: connection string, broker
// (kafka or rabbitmq), its address, topic or queue.
import { kafka } from '../../src/publishers/kafka.ts';
import { rabbitmq } from '../../src/publishers/rabbitmq.ts';
import { createRelay } from '../../src/relay/relay.ts';

const [connectionString = '', broker = '', address = '', topic = ''] = process.argv.slice(2);
const relay = createRelay({
  connectionString,
  leaseMs: 2_000,
  prefetchMax: 200,
  batchSizeMax: 100,
  destinations: { events: broker === 'kafka' ? kafka({ brokers: [address] }) : rabbitmq({ url: address }) },
  route: () => ({ to: 'events', topic }),
});
await relay.start();
