import { PostcommitError } from '../../errors.ts';
import type { ClaimedRow } from '../../outbox/delivering/claim.ts';
import type { DeliveredEvent } from '../../wire/delivered-event.ts';

import type { Handler, HandlerContext } from './handlers.ts';

/** How long an abandoned handler may take to notice its aborted signal before its event is released. */
const abandonGraceMs = 250;

/** One call of one handler: the context it is given, its time limit, and how it ended. Ends exactly once. */
export class HandlerCall implements HandlerContext {
  readonly handler: string;
  readonly #row: ClaimedRow;
  readonly #timeoutMs: number;
  readonly #startedAt = performance.now();
  #onEnd: ((call: HandlerCall) => void) | undefined;
  #controller: AbortController | undefined;
  #abortedWith: unknown;
  #abandoned = false;
  /** `released`: the relay abandoned it before it ended. */
  result: 'running' | 'delivered' | 'failed' | 'released' = 'running';
  thrown: unknown;

  constructor(row: ClaimedRow, handler: string, timeoutMs: number, onEnd: (call: HandlerCall) => void) {
    this.#row = row;
    this.handler = handler;
    this.#timeoutMs = timeoutMs;
    this.#onEnd = onEnd;
  }

  get attempt(): number {
    return this.#row.attempts + 1;
  }

  get idempotencyKey(): string {
    return `${this.#row.id}:${this.handler}`;
  }

  /** Created when the handler reads it: most do not. */
  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#abortedWith !== undefined) this.#controller.abort(this.#abortedWith);
    }
    return this.#controller.signal;
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

  /** A handler that never settles must not occupy its slot forever. */
  checkTime(now: number): void {
    if (now - this.#startedAt < this.#timeoutMs) return;
    const error = new PostcommitError('POSTCOMMIT_E_DELIVER_TIMEOUT', `It is ${this.#timeoutMs} ms.`);
    this.#end(this.#abandoned ? 'released' : 'failed', error);
    this.#abort(error);
  }

  /** The relay no longer waits for the result: the signal is aborted, and the handler has a moment to finish. */
  abandon(reason: unknown): void {
    if (this.#abandoned || this.result !== 'running') return;
    this.#abandoned = true;
    setTimeout(() => this.#end('released'), abandonGraceMs);
    this.#abort(reason);
  }

  #end(result: 'delivered' | 'failed' | 'released', thrown?: unknown): void {
    const onEnd = this.#onEnd;
    if (onEnd === undefined) return;
    this.#onEnd = undefined;
    this.result = result;
    this.thrown = thrown;
    onEnd(this);
  }

  #abort(reason: unknown): void {
    this.#abortedWith = reason;
    this.#controller?.abort(reason);
  }
}
