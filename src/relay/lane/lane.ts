import type { Service } from '../service/service.ts';
import type { SettleEntry } from '../settle/transition.ts';

/**
 * Where a relay gets its events from. A lane passes each event to the dispatcher once, in order of seq within a key, and is
 * notified when its outcome is durable. How it finds events and limits itself is internal: the dispatcher and everything
 * after it are the same for all lanes. `RelaySession` starts the lanes; `QueueLanes` is the polling one, a `PollingLane` per queue.
 */
export interface Lane extends Service {
  /** One search for events, for a relay that runs once. */
  claimOnce(): Promise<ClaimReport>;
  /** The outcome of an event that this lane handed over is durable, or another relay owns the event. */
  settled(entry: SettleEntry): void;
  /** The lease is lost: everything that was handed over belongs to other relays. */
  forget(): void;
}

export interface ClaimReport {
  claimed: number;
  /** Whether nothing more can be claimed now. */
  exhausted: boolean;
  /** When to claim again at the latest, without a notification; 0 for at once, `undefined` if there is no such time. */
  pauseMs: number | undefined;
}
