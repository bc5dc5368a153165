// A relay with default options that drains a backlog. Answers by IPC with its highest resident set. JavaScript, because Node's own
// TypeScript stripper takes 35 MB of the process.
import { createRelay } from '../../dist/index.js';

const { connectionString, events } = JSON.parse(process.argv[2]);
let calls = 0;
let handledAll;
const allHandled = new Promise((resolve) => {
  handledAll = resolve;
});
const noop = async () => {
  if (++calls === events) handledAll();
};
const relay = createRelay({ connectionString, handlers: { 'order.created': { noop } } });
await relay.start();
const startedAtMs = performance.now();
await allHandled;
const drainMs = performance.now() - startedAtMs;
await relay.stop(); // Settles everything.
const residentBytesMax = process.resourceUsage().maxRSS * 1_024;
process.send({ node: process.version, calls, drainMs, residentBytesMax }, () => process.exit(0));
