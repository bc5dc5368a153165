import type { ProbedRelays, SuspectRelay } from '../../outbox/delivering/probe-relays.ts';
import { calmMs, graceMs, probeGapMsMax, probeMs } from './tuning.ts';

/**
 * Decides when a relay whose session lock is free counts as lost: after `graceMs`, measured by this process's clock, because
 * the database's may be set.
 */
export class LostRelayDetector {
  /** Since when each suspect's lock was seen free. */
  #freeSince = new Map<string, number>();
  #lastSentAt = Number.NEGATIVE_INFINITY;
  #calmUntil = Number.NEGATIVE_INFINITY;

  /** The connection was lost and replaced: other relays may still be reconnecting. */
  reconnected(now: number): void {
    this.#freeSince.clear();
    this.#calmUntil = now + calmMs;
  }

  /** Returns the relays to declare lost. */
  judge({ suspects, serverUpMs }: ProbedRelays, sentAt: number, now: number): SuspectRelay[] {
    const known = sentAt - this.#lastSentAt > probeGapMsMax ? new Map<string, number>() : this.#freeSince;
    this.#lastSentAt = sentAt;
    this.#freeSince = new Map();
    for (const suspect of suspects) {
      if (suspect.freeSince !== '0') this.#freeSince.set(nameOf(suspect), known.get(nameOf(suspect)) ?? now);
    }
    const isCalm = now < this.#calmUntil || (serverUpMs >= 0 && serverUpMs < calmMs);
    return suspects.filter((suspect) => !isCalm && now - (this.#freeSince.get(nameOf(suspect)) ?? now) >= graceMs);
  }

  /** When to probe next. */
  nextInMs(now: number): number {
    const dueIn = [...this.#freeSince.values()].map((since) => since + graceMs - now).filter((ms) => ms > 0);
    return Math.min(probeMs, ...dueIn);
  }
}

/** A relay that took its lock again and lost it again is another suspect. */
const nameOf = ({ token, freeSince }: SuspectRelay): string => `${token}/${freeSince}`;
