/*
 * The constants of the lease, as parts of `leaseMs`.
 */

/** For how long after a renewal was sent the relay relies on its lease: it stops before another relay may take over. */
export const safeShare = 0.9;
/** The time between two heartbeats, and after one that failed. */
export const beatShare = 1 / 3;
export const beatAgainShare = 1 / 10;
/** How far the database's clock may run ahead of this process's between two heartbeats. It expires no lease renewed in time. */
export const clockShare = 1 / 3;
/** The pause between two tries to register again after the lease was lost. */
export const registerAgainMs = 500;
