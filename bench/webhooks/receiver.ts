// All customers' endpoints in a process of its own: some hang, some are slow, the others answer at once. Loopback only.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { monotonicMs } from '../clock.ts';

export interface ReceiverTask {
  /** The first so many customers never answer, and the next so many after `slowMs`. */
  hanging: number;
  slow: number;
  slowMs: number;
}

export interface ReceiverReport {
  /** Every request of the customers that answer at once: which event, and when it had arrived. */
  arrivals: [event: number, atMs: number][];
}

const { hanging, slow, slowMs } = JSON.parse(process.argv[2] ?? '') as ReceiverTask;
const arrivals: ReceiverReport['arrivals'] = [];

const server = createServer(async (request, response) => {
  const customer = Number(request.url?.slice('/customers/'.length));
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  if (customer < hanging) return;
  if (customer < hanging + slow) {
    setTimeout(() => response.writeHead(204).end(), slowMs);
    return;
  }
  const atMs = monotonicMs();
  response.writeHead(204).end();
  arrivals.push([JSON.parse(Buffer.concat(chunks).toString()).data.event, atMs]);
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1');
await once(server, 'listening');
process.send?.({ note: 'ready', port: (server.address() as { port: number }).port });
await once(process, 'message');
const report: ReceiverReport = { arrivals };
process.send?.(report, () => process.exit(0));
