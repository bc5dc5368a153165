/*
 * The constants of the lane stage, with their reasons.
 */

/** The relay buffers this much work, in time: fast handlers stay busy, and slow ones keep few events from other relays. */
export const bufferMs = 250;
/** The shortest busy time that the pace of deliveries is measured over. */
export const paceSampleMsMin = 10;

/** The part of a claim for waiting events that are due, while there are ready ones too. */
export const dueShare = 0.25;
/** How long events are read one by one after a claim that the database did not answer in time. */
export const oneByOneForMs = 60_000;
/** For how long `claimNext`, for one event, is not tried after it found something else: it costs a round trip. */
export const notOneForMs = { more: 20, raced: 0, other: 500 };
/**
 * After a claim for one event alone, everything is examined within this time: waiting events that are due, suspects, and what
 * ended relays have left. Rare enough that most events of a steady stream are claimed quickly.
 */
export const examineAllAfterMs = 100;
/** How often a lane without room checks again: slow keys are judged by time. */
export const roomCheckMs = 50;
/** The pause after the nth consecutive failed claim: 20 ms, doubled each time up to `claimRetryMsMax`. */
export const claimRetryMsMax = 1_000;

/** How often the low-water mark is sampled: with this many events claimed since, and when there are few. */
export const sampleEveryMs = 200;
export const sampleEvents = 1_000;
export const sampleQuietMs = 5_000;
/** How often a claim ignores the low-water mark. It finds what a wrong mark would hide. */
export const fullLookEveryMs = 30_000;

/** How often a claim starts from the oldest event again while a backlog is claimed. */
export const fromStartEveryMs = 250;
/** How often a relay without events of its own examines those of other relays. */
export const allAfterMs = 50;
/**
 * How often a relay with enough events of its own examines those of other relays, and how many any relay examines first. Claims
 * of a full batch would lock what the others are about to claim: four relays used 1.8 times the processor time of one.
 */
export const glanceEveryMs = 1_000;
export const glanceAgainMs = 250;
export const glanceMin = 32;
export const glanceMax = 4_096;
/** A glance that finds only blocked events continues after them, and examines at most this many. */
export const glanceBlockedMax = 256;
export const glanceFromStartMs = 5_000;
/** The pause after a walk over more events than one claim examines, if none could be claimed: doubled each time. */
export const blockedPauseMs = 50;
export const blockedPauseMsMax = 1_000;

/**
 * How long a relay claims nothing after a crash or a failover of the server, if there are other relays: they may have events
 * in hand whose claims the server has lost.
 */
export const othersRegainMs = 2_000;

/** How often the relay checks whether the server processes of lost claims have ended. */
export const lostClaimsCheckMs = 1_000;

/** How soon a lane claims again after another lane has claimed or settled what its own events may have waited for. */
export const blockedRetryMs = 20;

/** How often the backlogs of slow keys are deferred, and for how many keys at once. */
export const deferEveryMs = 500;
export const deferKeysMax = 8;
/** How many events of a key are undeferred at once: of one that is still slow, and of one that is not. */
export const undeferSlowMax = 64;
export const undeferMax = 20_000;
/** And of one that has recovered: undeferred events come before newer events of other keys, so not too many. */
export const undeferRecoveredMax = 4_000;
