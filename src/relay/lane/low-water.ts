import { compareSeq, type LowWaterMark, type QueueSample } from '../../outbox/delivering/claim.ts';
import { fullLookEveryMs, sampleEvents, sampleEveryMs, sampleQuietMs } from './tuning.ts';

/** The sequence begins at 1. */
const unknownRequeues = '-1';

/**
 * The low-water mark: a seq below which nothing is in the queue and nothing will be. It only saves work: while a session
 * holds an old snapshot, PostgreSQL keeps the index entries of every settled event, and a claim that starts from the
 * beginning reads all of them.
 *
 * Why nothing can appear below it: a seq is drawn before its event commits, so the lowest seq in the queue is not a mark yet,
 * because a transaction that drew a lower one may still be running. It is a candidate, together with the transactions running
 * at that moment. Any seq drawn later is higher than all drawn until then. Once every transaction of that moment has ended
 * (the oldest running one is younger than all of them), all lower seqs that will ever commit have done so; the sample that
 * detects this also sees their events. Requeued events are counted (`requeues`) before their transaction commits, and a
 * sample reads the number before its snapshot. If the count happens later, the claim that could find the event sees a
 * different number and ignores the mark; if earlier, its transaction is one of those running at that moment.
 *
 * A seq drawn later is higher only while the sequence does not go back. It goes back after a restore or a failover that lost
 * data, so a mark is valid only for the server that it was taken from (`server`), and after TRUNCATE ... RESTART IDENTITY,
 * which counts as a requeue. The claim compares all of this.
 *
 * As a safety net, a claim without the mark twice a minute still finds every event.
 */
export class LowWater {
  #mark = '0';
  #requeues = unknownRequeues;
  #server = '';
  #candidate: { seq: string; xmax: bigint } | undefined;
  /** The highest seq seen in the queue since the last full claim. */
  #reached = '0';
  #sampledAt = Number.NEGATIVE_INFINITY;
  /** Events claimed since then. */
  #claimed = 0;
  #fullLookAt = Number.NEGATIVE_INFINITY;

  get mark(): LowWaterMark {
    return { mark: this.#mark, requeues: this.#requeues, server: this.#server };
  }

  /** Whether it is time for a claim from the start to sample. */
  sampleIsDue(now: number): boolean {
    const sinceMs = now - this.#sampledAt;
    return sinceMs >= sampleQuietMs || (sinceMs >= sampleEveryMs && this.#claimed >= sampleEvents);
  }

  /** Before a claim that samples. Occasionally resets the mark for it. */
  beginSample(now: number): void {
    this.#sampledAt = now;
    this.#claimed = 0;
    if (now - this.#fullLookAt < fullLookEveryMs) return;
    this.#fullLookAt = now;
    this.forget();
  }

  /** The server may be a different one that has replicated less: after a failover, or a restore. */
  forget(): void {
    this.#forget(unknownRequeues, '');
    this.#reached = '0';
  }

  /** A claim has examined ready events up to this one, and claimed this many. */
  seen(seq: string, claimed: number): void {
    this.#claimed += claimed;
    if (compareSeq(seq, this.#reached) > 0) this.#reached = seq;
  }

  /** After a claim that sampled. */
  sampled(sample: QueueSample): void {
    const isFirst = this.#requeues === unknownRequeues;
    if (sample.server !== this.#server || sample.requeues !== this.#requeues) {
      // `lowest` may be wrong then, which is harmless: a mark is made from two samples, and the second one reads everything.
      this.#forget(sample.requeues, sample.server);
      // Seqs seen before may be above the current value of the sequence.
      if (!isFirst) this.#reached = '0';
    }
    const lowest = sample.lowest ?? this.#reached;
    if (this.#candidate && BigInt(sample.xmin) >= this.#candidate.xmax) {
      const { seq } = this.#candidate;
      this.#mark = compareSeq(lowest, seq) < 0 ? lowest : seq;
      this.#candidate = undefined;
    }
    this.#candidate ??= { seq: lowest, xmax: BigInt(sample.xmax) };
  }

  #forget(requeues: string, server: string): void {
    this.#mark = '0';
    this.#requeues = requeues;
    this.#server = server;
    this.#candidate = undefined;
  }
}
