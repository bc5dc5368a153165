// A TCP proxy that keeps every byte for a while, in a process of its own so that its work does not count as the client's.
// Tells its port by IPC, ends with its parent.
import { createConnection, createServer, type Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { monotonicMs } from '../clock.ts';

const { port, host, delayMs } = JSON.parse(process.argv[2] ?? '') as { port: number; host: string; delayMs: number };

/**
 * Node's timers count in milliseconds, and asking the clock again and again would keep a whole core busy. A thread that
 * sleeps in the kernel is exact to a tenth of a millisecond and costs next to nothing.
 */
const scheduled = new Int32Array(new SharedArrayBuffer(4));
const dueAtMs = new Float64Array(new SharedArrayBuffer(8));
const alarm = new Worker(new URL('alarm.ts', import.meta.url), { workerData: { scheduled, dueAtMs } });

/** Everything waits equally long, so one line serves all connections. `null` is the end of a stream. */
const waiting: { dueAtMs: number; to: Socket; chunk: Buffer | null }[] = [];

function setAlarm(): void {
  const first = waiting[0];
  if (!first) return;
  dueAtMs[0] = first.dueAtMs;
  Atomics.add(scheduled, 0, 1);
  Atomics.notify(scheduled, 0);
}

alarm.on('message', () => {
  const now = monotonicMs();
  const due = waiting.findIndex((held) => held.dueAtMs > now);
  for (const { to, chunk } of waiting.splice(0, due === -1 ? waiting.length : due)) {
    if (to.destroyed) continue;
    if (chunk === null) to.end();
    else to.write(chunk);
  }
  setAlarm();
});

function delay(from: Socket, to: Socket): void {
  const hold = (chunk: Buffer | null) => {
    waiting.push({ dueAtMs: monotonicMs() + delayMs, to, chunk });
    if (waiting.length === 1) setAlarm();
  };
  from.on('data', hold);
  from.on('end', () => hold(null));
  from.on('error', () => to.destroy());
}

const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
  const upstream = createConnection({ host, port, allowHalfOpen: true, noDelay: true });
  delay(client, upstream);
  delay(upstream, client);
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  process.send?.({ port: typeof address === 'object' ? address?.port : 0 });
});
process.once('disconnect', () => process.exit(0));
