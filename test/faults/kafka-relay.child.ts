// A relay that publishes to Kafka, in a process of its own, for a test that kills it. Arguments: connection string,
// broker, topic, prefetchMax. It tells how many events it has sent, one JSON object a line.
import { kafka } from '../../src/publishers/kafka.ts';
import { createRelay } from '../../src/relay/relay.ts';

const [connectionString = '', broker = '', topic = '', prefetchMax = ''] = process.argv.slice(2);
const relay = createRelay({
  connectionString,
  leaseMs: 2_000,
  prefetchMax: Number(prefetchMax),
  batchSizeMax: Math.min(500, Number(prefetchMax)),
  destinations: { events: kafka({ brokers: [broker] }) },
  route: () => ({ to: 'events', topic }),
});
await relay.start();
console.log(JSON.stringify({ event: 'started' }));
setInterval(() => console.log(JSON.stringify({ delivered: relay.stats().delivered })), 5);
