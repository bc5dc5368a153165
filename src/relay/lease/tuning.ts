/*
 * The constants of the lease. Shares are parts of `leaseMs`.
 */

export { safeShare } from '../service/safe-share.ts';

/** The time between two heartbeats, and after one that failed. */
export const beatShare = 1 / 3;
export const beatAgainShare = 1 / 10;
/** How far the database's clock may run ahead of this process's between two heartbeats. It expires no lease renewed in time. */
export const clockShare = 1 / 3;
/** The pause between two tries to register again after the lease was lost. */
export const registerAgainMs = 500;

/** How often a relay tests the session locks of the others, which also shows that its own session is still there. */
export const probeMs = 300;
/**
 * How long a lock must have been free before its relay is declared lost: time to notice a network cut of two seconds, to
 * reconnect and to take the lock again.
 */
export const graceMs = 2_400;
/** For how long after a probe was sent the relay relies on its session lock. Below `graceMs`, as with `safeShare`. */
export const trustMs = 2_000;
/** After a longer pause between two probes, the time for which locks were free is counted anew. */
export const probeGapMsMax = 1_000;
/**
 * No relay is declared lost for its free lock while the server, or a connection that replaced a lost one, is younger than
 * this: a restart or a failover frees all locks at once, and the others may take a few attempts to connect.
 */
export const calmMs = 10_000;
/** When to try again for a session lock that another session holds. */
export const lockAgainMs = 3_000;
/** One attempt to connect, and the pause before the next: short, because the grace is short. */
export const connectMs = 3_000;
export const reconnectMs = (attempt: number): number => (attempt <= 50 ? 50 : 500) * (1 + Math.random());

/** How often the event loop shows at least that it moves, and tells the thread what the relay has done. */
export const pulseMsMax = 1_000;
/** The heap of the heartbeat's thread. */
export const threadHeapMb = 64;
