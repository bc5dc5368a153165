import type { PublishOutcome } from '../../../publishers/publisher.ts';
import { errorText } from '../../../telemetry/error-text.ts';
import { boundedMs } from '../../event/outcome.ts';
import { FailureAttribution, failedAlone } from './failure-attribution.ts';
import type { PendingMessage } from './pending-message.ts';

export interface OutageDetectorOptions {
  retryAfterMaxMs: number;
  isUp: () => boolean;
  isProven: () => boolean;
  isAlive: () => Promise<boolean>;
  onUnavailable: (reason: string, retryAfterMs: number) => void;
}

/** A batch with messages that failed as unavailable. */
export interface FailedBatch {
  entries: readonly PendingMessage[];
  outcomes: readonly PublishOutcome[];
}

const none: ReadonlySet<string> = new Set();

/** Checks whether a destination is alive after a failure, and opens its circuit when there is an outage. */
export class OutageDetector {
  readonly attribution = new FailureAttribution();
  readonly #options: OutageDetectorOptions;
  readonly #onAnswer: () => void;
  #asked: Promise<boolean> | undefined;
  #isDoubted = false;
  #stopped = false;

  constructor(options: OutageDetectorOptions, onAnswer: () => void) {
    this.#options = options;
    this.#onAnswer = onAnswer;
  }

  /** Whether sending waits for the result of `health()`. */
  get isDoubted(): boolean {
    return this.#isDoubted;
  }

  /** From now on a missing result is not an outage: the publisher may be closed. */
  stop(): void {
    this.#stopped = true;
  }

  /**
   * The events and topics whose failure in this batch counts as their own. None if the destination is not alive right after,
   * because an outage costs no attempt (G6): the circuit is then open.
   */
  async ownFailures(batch: FailedBatch): Promise<ReadonlySet<string>> {
    const alone = failedAlone(batch.entries, batch.outcomes);
    if (alone.size === 0) return none;
    // An event that is known to fail for its own reasons does not delay the others.
    if (!this.attribution.isKnown(unavailable(batch).entries)) this.#isDoubted = true;
    if (await this.#ask()) return alone;
    this.#tripIfDown(unavailable(batch).outcomes[0]);
    return none;
  }

  /**
   * Decides whether the failures are an outage of the destination. Returns the entries that failed for their own reasons.
   * `canTry`: whether another event is available as a trial.
   */
  decideBatch(batch: FailedBatch, own: ReadonlySet<string>, canTry: () => boolean): ReadonlySet<PendingMessage> {
    const { entries, outcomes } = unavailable(batch);
    const verdicts = this.attribution.failed(entries, own);
    const first = outcomes[verdicts.findIndex((verdict) => verdict !== 'own')];
    if (!this.#options.isUp()) this.attribution.tripped();
    else if (first !== undefined) this.#decide(first, { verdicts, batch, canTry, wasAsked: own.size > 0 });
    return new Set(entries.filter((_, index) => verdicts[index] === 'own'));
  }

  #decide(
    first: PublishOutcome,
    about: { verdicts: readonly string[]; batch: FailedBatch; canTry: () => boolean; wasAsked: boolean },
  ): void {
    const isProven = this.#options.isProven();
    const isHopeless = isProven ? about.verdicts.includes('again') || !this.attribution.hasProof : !about.canTry();
    const hasSuccess = about.batch.outcomes.some(({ kind }) => kind === 'delivered');
    const isDown = this.#retryAfterMs(first) > 0 || (!hasSuccess && (this.attribution.manyFailed || isHopeless));
    if (isDown) this.#trip(first);
    else if (isProven && !about.wasAsked) void this.#doubt(first);
  }

  async #doubt(outcome: PublishOutcome): Promise<void> {
    this.#isDoubted = true;
    if (!(await this.#ask())) this.#tripIfDown(outcome);
  }

  /** Calls `health()` once for all callers that wait for it. */
  #ask(): Promise<boolean> {
    this.#asked ??= this.#options.isAlive().then((isAlive) => {
      this.#asked = undefined;
      this.#isDoubted = false;
      this.#onAnswer();
      return isAlive;
    });
    return this.#asked;
  }

  #tripIfDown(outcome: PublishOutcome | undefined): void {
    if (outcome !== undefined && !this.#stopped && this.#options.isUp()) this.#trip(outcome);
  }

  #trip(outcome: PublishOutcome): void {
    this.attribution.tripped();
    const reason = outcome.kind === 'delivered' ? '' : errorText(outcome.reason);
    this.#options.onUnavailable(reason, this.#retryAfterMs(outcome));
  }

  #retryAfterMs(outcome: PublishOutcome): number {
    const ms = outcome.kind === 'unavailable' ? outcome.retryAfterMs : undefined;
    return boundedMs(ms, this.#options.retryAfterMaxMs) ?? 0;
  }
}

function unavailable({ entries, outcomes }: FailedBatch): FailedBatch {
  return {
    entries: entries.filter((_, index) => outcomes[index]?.kind === 'unavailable'),
    outcomes: outcomes.filter(({ kind }) => kind === 'unavailable'),
  };
}
