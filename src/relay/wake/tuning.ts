/*
 * The constants of the wake stage, with their reasons.
 */

/** Without LISTEN the pauses between two claims grow from the first to the second of these. */
export const firstPauseMs = 10;
export const pauseWithoutListenMsMax = 250;
