import type { ClaimedRow } from '../../outbox/delivering/claim.ts';
import type { Plan } from '../deliver/planner.ts';
import type { PayloadLoad } from './payload-loader.ts';

/** An event that this relay has claimed, on its way through the pipeline until its outcome is settled. */
export interface ClaimedEvent extends ClaimedRow {
  /** Where it goes, once it is planned. */
  plan?: Plan | undefined;
  /** Set by the payload loader, while it loads or keeps the payload. */
  load?: PayloadLoad | undefined;
}
