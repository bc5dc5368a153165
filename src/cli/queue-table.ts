import { duration } from '../format.ts';
import type { QueueInfo } from '../outbox/operating/list-queues.ts';
import type { Output } from './output.ts';
import { instant } from './output.ts';

/** The database stops counting here. */
const countedMax = 100_000;

/** Prints a table of queues. */
export function printQueues(output: Output, queues: readonly QueueInfo[], now: Date): void {
  const figure = (count: number) => `${count.toLocaleString('en-US')}${count >= countedMax ? '+' : ''}`;
  output.table(
    ['QUEUE', 'STATE', 'RELAYS', 'READY', 'IN FLIGHT', 'WAITING', 'OLDEST', 'SINCE', 'WHY'],
    queues.map(({ name, state, relays, ready, inFlight, waiting, oldestReadyAt, pausedAt, reason }) => [
      name,
      state,
      String(relays),
      figure(ready),
      figure(inFlight),
      figure(waiting),
      oldestReadyAt ? duration(Math.max(0, now.getTime() - oldestReadyAt.getTime())) : '-',
      pausedAt ? instant(pausedAt) : '-',
      reason ?? '-',
    ]),
  );
}
