import type { ClaimedEvent } from '../event/claimed-event.ts';

/**
 * The lane's memory of what the dispatcher decided about keys. An event may have been read before a decision about its key,
 * so that neither its row nor the shelf shows it.
 */
export interface KeyDecisions {
  /** An event of this key goes back to the queue, or becomes a dead letter. */
  returning(key: string): void;
  /** This event of the key goes onto the shelf for these destinations. */
  shelving(key: string, seq: string, destinations: readonly string[]): void;
  /** Whether an earlier event of its key may have been returned after this one was read: then it must be returned too. */
  mustReturn(event: ClaimedEvent): boolean;
  /** The destinations for which an earlier event of its key may have been shelved after this one was read. */
  shelvedBefore(event: ClaimedEvent): ReadonlySet<string> | undefined;
}
