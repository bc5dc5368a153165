import type { ClaimedRow } from '../../outbox/delivering/claim.ts';
import type { Indexed } from './indexed-set.ts';

/** An event that this relay has claimed, on its way through the pipeline until its outcome is settled. */
export interface ClaimedEvent extends ClaimedRow, Indexed {}

/** For these destinations an earlier event of its key waits on the shelf. */
export function mayNotPass(event: ClaimedEvent, destinations: Iterable<string>): void {
  event.shelved = [...new Set([...event.shelved, ...destinations])];
}
