import { compareSeq, type LowWaterMark, type QueueSample } from '../../outbox/delivering/claim.ts';
import { fullLookEveryMs, sampleEvents, sampleEveryMs, sampleQuietMs } from './tuning.ts';

/** The sequence begins at 1. */
const unknownRequeues = '-1';

/**
 * The low-water mark: a seq below which nothing is in the queue and nothing will be. It only saves work: while a session
 * holds an old snapshot, PostgreSQL keeps the index entries of every settled event, and a claim that starts from the very
 * beginning reads all of them.
 *
 * Why nothing can appear below it. A seq is drawn before its event commits, so the lowest seq in the queue is no mark
 * yet: a transaction that drew a lower one may still be under way. It is a candidate, with the transactions of that
 * moment. Any seq drawn later is higher than all drawn until then. Once every transaction of that moment has ended (the
 * oldest one under way is younger than all of them), all lower seqs that will ever commit have done so; the sample that
 * sees this also sees their events. What comes back into the queue from elsewhere is counted (`requeues`) before its
 * transaction commits, and a sample reads the number before its snapshot. Counted later than that, the claim that could
 * meet it finds another number and does without the mark; counted before, its transaction is one of that moment.
 *
 * A seq drawn later is higher only while the sequence does not go back. It does after a restore or a failover that lost
 * something, so a mark holds for the server that it was taken from (`server`), and after TRUNCATE ... RESTART IDENTITY,
 * which counts as a return. The claim compares all of this.
 *
 * If all of this should be wrong one day, a claim without the mark twice a minute still finds every event.
 */
export class LowWater {
  #mark = '0';
  #requeues = unknownRequeues;
  #server = '';
  #candidate: { seq: string; xmax: bigint } | undefined;
  /** The highest seq seen in the queue since everything was looked at. */
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

  /** Before a claim that samples. Now and then the mark is forgotten for it. */
  beginSample(now: number): void {
    this.#sampledAt = now;
    this.#claimed = 0;
    if (now - this.#fullLookAt < fullLookEveryMs) return;
    this.#fullLookAt = now;
    this.forget();
  }

  /** The server may be another one now, that knows less: after a failover, or a restore. */
  forget(): void {
    this.#forget(unknownRequeues, '');
    this.#reached = '0';
  }

  /** A claim has looked at ready events up to this one, and claimed so many. */
  seen(seq: string, claimed: number): void {
    this.#claimed += claimed;
    if (compareSeq(seq, this.#reached) > 0) this.#reached = seq;
  }

  /** After a claim that sampled. */
  sampled(sample: QueueSample): void {
    const isFirst = this.#requeues === unknownRequeues;
    if (sample.server !== this.#server || sample.requeues !== this.#requeues) {
      // Whatever `lowest` is worth then: a mark is made from two samples, and the second one looks at everything.
      this.#forget(sample.requeues, sample.server);
      // What was seen before may be above what the sequence has come to since.
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
