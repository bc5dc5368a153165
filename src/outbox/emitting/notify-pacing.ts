/*
 * How often emitters notify relays, and how a relay makes up for it. Both sides are here, because they depend on each other:
 * an emitter notifies rarely only while a relay that found several events keeps claiming by itself. What NOTIFY costs the
 * transactions next to it is in docs/decisions/notify-after-commit.md.
 */

export const emitterPacing = {
  /** Commits count as recent for this long. */
  recentMs: 10,
  /** With fewer recent commits than this, NOTIFY is sent for each commit at once; above, with a pause in between. */
  briskMin: 6,
  briskPauseMs: 2,
  /** From this many recent commits on, NOTIFY becomes rare. */
  streamMin: 8,
  /** The first pause of a stream is just long enough for several events to gather. */
  firstStreamPauseMs: 5,
  streamPauseMs: 50,
};

export const relayPacing = {
  /** A claim of this many events after a wait is part of a stream. */
  streamMin: 3,
  /** In a stream the relay claims this often, until no event came for `streamEndsAfterMs`: by then emitters notify again. */
  streamPauseMs: 5,
  streamEndsAfterMs: 100,
};
