import type { ClaimedRow } from '../../outbox/delivering/claim.ts';

/** An event that this relay has claimed, on its way through the pipeline until its outcome is settled. */
export type ClaimedEvent = ClaimedRow;
