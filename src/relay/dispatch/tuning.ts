/*
 * The constants of the dispatch stage, with their reasons.
 */

/**
 * A prime suspect (suspicion.ts) is delivered with nothing else in flight. For this long nothing else starts because one
 * waits; if deliveries are still in flight then, it is released for `postponeMs`, so that a slow handler does not stop the
 * relay.
 */
export const aloneWaitMs = 5_000;
export const postponeMs = 60_000;

/** The part of the buffer that keys with a long backlog may have together; the rest is for all other keys. */
export const crowdedShare = 0.5;

/**
 * The part of the buffer that events may have together that wait for handlers with limits. Less than half: a lane claims when half
 * of the buffer is free.
 */
export const linesShare = 0.25;

/**
 * Events behind work of another queue, or behind a handler at its limits, do not count as buffered. When they have waited for
 * `blockedAfterMs`, a queue keeps this many for each of its slots, and at most `linesShare` of the buffer. Not a part of the buffer's
 * present size alone: that depends on the pace, and they would be released and claimed again with it. A buffer is for a quarter of
 * a second, so behind a queue that is busy but not stuck they wait for less.
 */
export const blockedPerSlot = 0.5;
export const blockedAfterMs = 500;

/** For how long the excess events of a slow key are released. */
export const slowKeyDelayMs = 1_000;

/** A key whose deliveries take longer than this on average is slow. */
export const slowKeyAfterMs = 100;
/** How much work a key may have in the buffer, in time; `keyEventsMin` events if that is more. */
export const keyBufferMs = 250;
export const keyEventsMin = 32;
/** Deliveries of a key are timed in groups of this size or duration, so that one pause of the process makes no key slow. */
export const timedGroupSize = 16;
export const timedGroupMs = 20;

/** Payloads up to this part of `inFlightBytesMax` are small, and half of the budget is theirs. */
export const smallPayloadFraction = 1 / 32;
/** After this many failed loads of its payload in a row, an event has failed an attempt. */
export const loadFailuresMax = 3;
/** How many events with failed loads are remembered. */
export const countedLoadsMax = 10_000;
/** Loads that made no progress for this long do not count as buffered, so that claims continue. */
export const loadStuckAfterMs = 1_000;
