/*
 * The constants of maintenance, with their reasons.
 */

/** How long a task processes chunks in one turn, and in a relay that only runs once. */
export const taskMs = 5_000;
export const taskMsOnce = 1_000;
/** The connection of a task that takes longer is closed: no chunk takes nearly that long, so it is dead. */
export const taskMsMax = 60_000;
/** The pause before a turn that continues what the last one left undone. */
export const goOnMs = 1_000;
/** The least pause between two chunks; else as long as the chunk took, so that maintenance uses at most half of the time. */
export const chunkPauseMs = 5;
/** Rows per statement: some ten milliseconds of work. */
export const chunkRowsMax = 1_000;
/** Old events that were still needed are examined again after this time. */
export const cycleMs = 3_600_000;
/** How long `stop()` waits for the chunk in progress, and for giving up the duty. */
export const stopTimeoutMs = 2_000;
