/*
 * The constants of the wake stage, with their reasons.
 */

/** Without LISTEN the pauses between two looks at the queue grow from the first to the second of these. */
export const firstPauseMs = 10;
export const pauseWithoutListenMsMax = 250;
/**
 * A claim of this many events after a wait is part of a stream, for which emitters notify only now and then
 * (emit/doorbell-ringer.ts). So the relay looks at the queue every `streamPauseMs` by itself, until nothing came for
 * `streamEndsAfterMs`: by then emitters notify for each commit again.
 */
export const streamMin = 3;
export const streamPauseMs = 5;
export const streamEndsAfterMs = 100;
