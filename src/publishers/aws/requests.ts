import { untilAborted } from '../failure.ts';
import type { PublishOutcome } from '../publisher.ts';
import { delivered } from '../publisher.ts';
import type { AwsEntry } from './entry.ts';
import { failureOfRequest, isNoSuchTarget, outcomeOfEntry } from './errors.ts';
import type { AwsAnswer, AwsService, AwsSession } from './publisher.ts';

/** AWS's limit, in SQS and SNS alike. */
const entriesMax = 10;

interface Waiting {
  readonly entry: AwsEntry;
  readonly settle: (outcome: PublishOutcome) => void;
}

/**
 * Packs entries into requests and sends them in parallel, for one call of `publish`. It never has two entries of one key
 * in flight: the second is added when the first is answered, because AWS may take the second of a request and not the
 * first.
 */
export class AwsRequests {
  readonly #session: AwsSession;
  readonly #limits: Pick<AwsService, 'messageBytesMax' | 'requestsAtOnceMax'>;
  readonly #signal: AbortSignal;
  readonly #waiting = new Map<string, Waiting[]>();
  #underWay = 0;
  #scheduled = false;

  constructor(
    session: AwsSession,
    limits: Pick<AwsService, 'messageBytesMax' | 'requestsAtOnceMax'>,
    signal: AbortSignal,
  ) {
    this.#session = session;
    this.#limits = limits;
    this.#signal = signal;
  }

  add(target: string, entry: AwsEntry): Promise<PublishOutcome> {
    return new Promise((settle) => {
      const line = this.#waiting.get(target) ?? [];
      line.push({ entry, settle });
      this.#waiting.set(target, line);
      this.#schedule();
    });
  }

  /** Runs after everything that is ready has been added, so that requests are full. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#start();
    });
  }

  #start(): void {
    for (const [target, line] of this.#waiting) {
      while (line.length > 0 && this.#underWay < this.#limits.requestsAtOnceMax) {
        const request = line.splice(0, this.#fitting(line));
        this.#underWay++;
        void this.#send(target, request).finally(() => {
          this.#underWay--;
          this.#schedule();
        });
      }
      if (line.length === 0) this.#waiting.delete(target);
    }
  }

  /** How many of the line fit into one request: at least the first, whose size is checked. */
  #fitting(line: readonly Waiting[]): number {
    let bytes = 0;
    let count = 0;
    for (const { entry } of line) {
      bytes += entry.bytes;
      if (count === entriesMax || (count > 0 && bytes > this.#limits.messageBytesMax)) break;
      count++;
    }
    return count;
  }

  async #send(target: string, request: readonly Waiting[]): Promise<void> {
    try {
      this.#signal.throwIfAborted();
      const entries = request.map(({ entry }) => entry);
      settleAll(request, await untilAborted(this.#session.send(target, entries, this.#signal), this.#signal));
    } catch (error) {
      if (isNoSuchTarget(error)) this.#session.forget(target);
      const failure = failureOfRequest(error, target);
      if (failure.of === 'some' && request.length > 1) {
        // One after the other: this request has one of the `requestsAtOnceMax` places.
        for (const one of request) await this.#send(target, [one]);
        return;
      }
      for (const { settle } of request) settle(failure.outcome);
    }
  }
}

function settleAll(request: readonly Waiting[], answer: AwsAnswer): void {
  const failed = new Map(answer.Failed?.map((failure) => [failure.Id, failure]));
  const successful = new Set(answer.Successful?.map(({ Id }) => Id));
  for (const [index, { settle }] of request.entries()) {
    const id = String(index);
    const failure = failed.get(id);
    if (failure) settle(outcomeOfEntry(failure));
    else settle(successful.has(id) ? delivered : unanswered);
  }
}

const unanswered: PublishOutcome = { kind: 'failed', reason: 'AWS returned no result for the message.' };
