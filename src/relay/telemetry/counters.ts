/** What a relay has done since it was created. */
export interface Counters {
  /** Events taken from the queue. */
  claimed: number;
  /** Events delivered to all of their targets and settled. */
  delivered: number;
  /** Failed attempts that will be retried. */
  failed: number;
  /** Events that became dead letters: rejected by a target, or out of attempts. */
  deadLettered: number;
  /** Events put on the shelf because a destination is down or paused. No attempt was counted. */
  unavailable: number;
  /** Events put back into the queue without an attempt. */
  released: number;
  /** Events cancelled by an operator while this relay had claimed them. */
  cancelled: number;
  /** Results that came too late, because another relay had taken over. */
  fenced: number;
  /** Events taken over from relays that ended. */
  takenOver: number;
}

export function newCounters(): Counters {
  const outcomes = { delivered: 0, failed: 0, deadLettered: 0, unavailable: 0, released: 0 };
  return { claimed: 0, ...outcomes, cancelled: 0, fenced: 0, takenOver: 0 };
}
