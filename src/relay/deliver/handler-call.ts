import { PostcommitError } from '../../errors.ts';
import { shown } from '../../format.ts';
import type { ClaimedRow } from '../../outbox/delivering/claim.ts';
import type { DeliveredEvent } from '../../wire/delivered-event.ts';
import type { Indexed } from '../event/indexed-set.ts';
import type { ProgressReport, ProgressWriter } from '../progress/progress-writer.ts';
import type { Handler, HandlerContext } from './handlers.ts';

/** How long an abandoned handler may take to notice its aborted signal before its event is released. */
const abandonGraceMs = 250;
/** The most that one `extendTimeout` adds: as much as `deliverTimeoutMs` can be. */
const extensionMsMax = 86_400_000;

export type ProgressSink = Pick<ProgressWriter, 'changed' | 'ended'>;

/** One call of one handler: the context it is given, its time limit, and how it ended. Ends exactly once. */
export class HandlerCall implements HandlerContext, Indexed {
  indexInSet = -1;
  readonly handler: string;
  readonly #row: ClaimedRow;
  readonly #timeoutMs: number;
  readonly #progress: ProgressSink;
  #startedAt = performance.now();
  #deadline: number;
  #report: ProgressReport | undefined;
  #onEnd: ((call: HandlerCall) => void) | undefined;
  #controller: AbortController | undefined;
  #abortedWith: unknown;
  #abandoned = false;
  #isCommitting = false;
  /** Of a transactional handler, until it returns or the call ends. */
  transaction: HandlerContext['tx'] | undefined;
  /** Called when the call ends before its handler does. */
  onEarlyEnd: ((reason?: Error) => void) | undefined;
  /** `released`: the relay abandoned it before it ended. */
  result: 'running' | 'delivered' | 'failed' | 'released' = 'running';
  thrown: unknown;

  constructor(
    row: ClaimedRow,
    handler: string,
    timeoutMs: number,
    progress: ProgressSink,
    onEnd: (call: HandlerCall) => void,
  ) {
    this.#row = row;
    this.handler = handler;
    this.#timeoutMs = timeoutMs;
    this.#progress = progress;
    this.#deadline = this.#startedAt + timeoutMs;
    this.#onEnd = onEnd;
  }

  get seq(): string {
    return this.#row.seq;
  }

  get attempt(): number {
    return this.#row.attempts + 1;
  }

  get idempotencyKey(): string {
    return `${this.#row.id}:${this.handler}`;
  }

  get tx(): HandlerContext['tx'] {
    if (this.transaction === undefined) throw new PostcommitError('POSTCOMMIT_E_NO_HANDLER_TRANSACTION');
    return this.transaction;
  }

  /** Created when the handler reads it: most do not. */
  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#abortedWith !== undefined) this.#controller.abort(this.#abortedWith);
    }
    return this.#controller.signal;
  }

  progress(fraction: number, note?: string): void {
    if (this.#onEnd === undefined) return;
    if (typeof fraction !== 'number' || !(fraction >= 0 && fraction <= 1)) {
      throw new PostcommitError(
        'POSTCOMMIT_E_BAD_ARGUMENT',
        `progress() takes a fraction from 0 to 1. Got ${fraction}.`,
      );
    }
    if (note !== undefined && typeof note !== 'string') {
      throw new PostcommitError('POSTCOMMIT_E_BAD_ARGUMENT', 'The note of progress() must be a text.');
    }
    this.#report ??= { seq: this.#row.seq, handler: this.handler, attempt: this.attempt, fraction: 0, note: undefined };
    this.#report.fraction = fraction;
    this.#report.note = note;
    this.#progress.changed(this.#report);
  }

  extendTimeout(ms: number): void {
    if (typeof ms !== 'number' || !(ms > 0 && ms <= extensionMsMax)) {
      const needs = `extendTimeout() takes more than 0 and at most ${extensionMsMax} milliseconds`;
      throw new PostcommitError('POSTCOMMIT_E_BAD_ARGUMENT', `${needs}. Got ${shown(ms)}.`);
    }
    this.#deadline = Math.max(this.#deadline, performance.now() + ms);
  }

  run(event: DeliveredEvent, handler: Handler): void {
    const succeed = () => this.#end('delivered');
    const fail = (thrown: unknown) => this.#end(this.#abandoned ? 'released' : 'failed', thrown);
    try {
      const returned = handler(event, this) as PromiseLike<unknown> | undefined;
      if (typeof returned?.then === 'function') returned.then(succeed, fail);
      else succeed();
    } catch (thrown) {
      fail(thrown);
    }
  }

  /**
   * The handler has returned, and its transaction is about to commit: from now on the call ends with the answer to that, and with
   * nothing else. Returns false if it has ended, or is abandoned.
   */
  beginCommit(): boolean {
    this.#isCommitting = this.#onEnd !== undefined && !this.#abandoned;
    return this.#isCommitting;
  }

  /** Gives the handler its whole time limit from now on: it is called now. */
  startTimeLimit(): void {
    this.#startedAt = performance.now();
    this.#deadline = this.#startedAt + this.#timeoutMs;
  }

  /** What the call waits for now is not the handler: its time limit does not end the call. */
  stopTimeLimit(): void {
    this.#deadline = Number.POSITIVE_INFINITY;
  }

  /** A handler that never settles must not occupy its slot forever. */
  checkTime(now: number): void {
    if (now < this.#deadline || this.#isCommitting) return;
    const limitMs = Math.round(this.#deadline - this.#startedAt);
    const extended = limitMs > this.#timeoutMs ? `, and the handler extended it to ${limitMs} ms` : '';
    const error = new PostcommitError('POSTCOMMIT_E_DELIVER_TIMEOUT', `It is ${this.#timeoutMs} ms${extended}.`);
    this.#endEarly(this.#abandoned ? 'released' : 'failed', error);
    this.#abort(error);
  }

  /** The relay no longer waits for the result: the signal is aborted, and the handler has a moment to finish. */
  abandon(reason: unknown): void {
    if (this.#abandoned || this.#isCommitting || this.result !== 'running') return;
    this.#abandoned = true;
    setTimeout(() => this.#endEarly('released'), abandonGraceMs);
    this.#abort(reason);
  }

  #endEarly(result: 'failed' | 'released', thrown?: Error): void {
    if (this.#onEnd === undefined) return;
    this.transaction = undefined;
    this.onEarlyEnd?.(thrown);
    this.#end(result, thrown);
  }

  #end(result: 'delivered' | 'failed' | 'released', thrown?: unknown): void {
    const onEnd = this.#onEnd;
    if (onEnd === undefined) return;
    this.#onEnd = undefined;
    if (this.#report) this.#progress.ended(this.#report);
    this.result = result;
    this.thrown = thrown;
    onEnd(this);
  }

  #abort(reason: unknown): void {
    this.#abortedWith = reason;
    this.#controller?.abort(reason);
  }
}
