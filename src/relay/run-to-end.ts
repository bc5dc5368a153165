import { setTimeout as sleep } from 'node:timers/promises';
import type { DestinationSet } from './deliver/destinations/destination-set.ts';
import type { QueueLanes } from './lane/queue-lanes.ts';
import type { Lease } from './lease/lease.ts';
import type { Maintenance } from './maintenance/maintenance.ts';
import type { ParkedEventSweeper } from './maintenance/parked-event-sweeper.ts';
import { withTimeout } from './service/timeout.ts';

export interface RunToEndOptions {
  sweeper: Pick<ParkedEventSweeper, 'once'>;
  lanes: Pick<QueueLanes, 'claimOnce' | 'isEmpty' | 'onEmpty'>;
  lease: Pick<Lease, 'valid'>;
  leaseMs: number;
  destinations: Pick<DestinationSet, 'refresh' | 'probed'>;
  maintenance: Maintenance | undefined;
  isStopping: () => boolean;
}

const claimPauseMsMax = 50;

/**
 * Delivers what is in the queue now. Returns whether nothing more can be claimed: not if the relay stops before. Fails when the database is unreachable for
 * longer than a lease: fail fast, because the caller is waiting.
 */
export async function runToEnd(options: RunToEndOptions): Promise<boolean> {
  const { sweeper, lanes, lease, destinations, maintenance, isStopping } = options;
  let complete = false;
  try {
    await sweeper.once();
    while (!complete && !isStopping()) {
      await whenLeased(options);
      const unshelved = await destinations.refresh();
      const { claimed, exhausted, pauseMs = 0 } = await lanes.claimOnce();
      await whenSettled(options);
      // It examines what other relays have only now and then.
      if (claimed === 0 && !exhausted && pauseMs > 0) await sleep(Math.min(pauseMs, claimPauseMsMax));
      // Without a lease nothing was claimed, even if there are events.
      complete = claimed + unshelved === 0 && exhausted && lease.valid && !(await destinations.probed());
    }
    if (!isStopping()) await maintenance?.once();
  } catch (error) {
    if (!isStopping()) throw error;
  }
  return complete;
}

async function whenLeased({ lease, leaseMs, isStopping }: RunToEndOptions): Promise<void> {
  const deadline = performance.now() + leaseMs;
  while (!lease.valid && !isStopping()) {
    if (performance.now() > deadline) throw new Error('Connection terminated: the lease could not be renewed');
    await sleep(20);
  }
}

async function whenSettled({ lanes, lease }: RunToEndOptions): Promise<void> {
  while (!lanes.isEmpty && lease.valid) {
    const empty = new Promise<void>((resolve) => {
      lanes.onEmpty = resolve;
    });
    await withTimeout(250, empty); // There is no signal for the moment at which the lease expires.
  }
  lanes.onEmpty = undefined;
}
