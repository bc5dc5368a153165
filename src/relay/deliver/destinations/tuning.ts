/*
 * Constants of destinations, with their reasons.
 */

/** How often the state of all destinations is read: when all are up, when one is down, and while a shelf is emptied. */
export const refreshEveryMs = { calm: 1_000, down: 500, draining: 100 };
/** How many events are unshelved at once, and how many for a destination that is not known to accept events. */
export const unshelveMax = 2_000;
export const trialMax = 10;
/** The least that a slow destination may queue. */
export const slowBufferMin = 16;
export const closeTimeoutMs = 5_000;
/** How long a destination may take to answer `health()` after a failure that may not be an outage. */
export const aliveWithinMs = 1_000;
/** How long the start waits for a destination, to learn whether it refuses this relay. */
export const connectWaitMs = 3_000;

/** How long a publisher may take to react to its timeout: in a call of `publish`, and of `health`. */
export const publishGraceMs = 2_000;
export const healthGraceMs = 500;
/** How long it may take after its batch was abandoned. */
export const abandonGraceMs = 250;

/** A batch that takes longer makes its destination, or its part, slow: it may use only a part of the buffer. */
export const slowAfterMs = 250;
/** If the relay has other targets: messages behind a batch are shelved after this time. */
export const stalledAfterMs = 2_000;
/** How many queued messages of busy keys are skipped to fill a batch. */
export const skipMax = 4_096;

/** A part may queue this much work, in time, or as many batches as it takes at once if that is more. */
export const partQueuedMs = 250;
/** What a request is expected to take before the first one was answered. */
export const partFirstTookMs = 25;
/** How long an event that finds its part's queue full is released for, and how long at first. */
export const partDelayMsMin = 100;
export const partDelayMsMax = 300_000;
export const partFirstDelayMsMax = 500;
/** How many slow parts without work are remembered. */
export const partsMax = 10_000;
/** For how many topics the name of the part is cached: webhooks would parse the URL for each message. */
export const partNamesMax = 1_000;

/** This many different events must fail consecutively before that alone is an outage. */
export const inRowMax = 3;
/** An event that has failed alone this often, while others were delivered, fails for its own reasons. */
export const aloneFailuresMax = 3;
/** For this long a delivered event proves that the destination accepts events. */
export const proofMs = 5_000;
/** How many events and topics that failed as unavailable are remembered. */
export const suspectsMax = 10_000;
