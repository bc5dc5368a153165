// A relay that claims only when it is notified, and prints what it delivered. Argument: connection string.
import { createRelay } from '../../src/relay/relay.ts';

const say = (message: object) => console.log(JSON.stringify(message));
const relay = createRelay({
  connectionString: process.argv[2] ?? '',
  pollIntervalMs: 60_000,
  handlers: { notified: { say: (event) => say({ id: event.id }) } },
});
await relay.start();
say({ started: true });
