/*
 * The constants of the wake stage, with their reasons.
 */

/** Without LISTEN the pauses between two claims grow from the first to the second of these. */
export const firstPauseMs = 10;
export const pauseWithoutListenMsMax = 250;
/**
 * A claim of this many events after a wait is part of a stream, for which emitters notify only occasionally
 * (emit/doorbell-ringer.ts). So the relay claims every `streamPauseMs` by itself, until no event came for
 * `streamEndsAfterMs`: by then emitters notify for each commit again.
 */
export const streamMin = 3;
export const streamPauseMs = 5;
export const streamEndsAfterMs = 100;
