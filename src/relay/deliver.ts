import { PostcommitError } from '../errors.ts';
import type { ClaimedRow } from '../outbox/claim.ts';
import type { DeadReason, TargetError } from '../outbox/fail.ts';
import { errorText } from '../telemetry/error-text.ts';
import { DeliveredEvent } from './delivered-event.ts';
import type { Handler } from './handlers.ts';
import { Reject } from './handlers.ts';

/** What came of one delivery, all of its targets taken together. */
export type Outcome =
  | { kind: 'ok'; targets: readonly string[] }
  | { kind: 'retry'; done: readonly string[]; errors: TargetError[] }
  | { kind: 'reject'; reason: DeadReason; done: readonly string[]; errors: TargetError[] }
  /** Not the event's fault: it goes back and no attempt counts. */
  | { kind: 'release'; done: readonly string[] };

export interface DelivererOptions {
  handlers: ReadonlyMap<string, readonly [name: string, handler: Handler][]>;
  deliverTimeoutMs: number;
  noHandler: 'retry' | 'fail';
  /** Fetches a payload that was too large to come with its claim. */
  loadPayload: (seq: string) => Promise<string | undefined>;
}

/** Brings one event to its targets. Never throws: every failure is an outcome. */
export class Deliverer {
  readonly #options: DelivererOptions;
  readonly #calls = new Set<Call>();

  constructor(options: DelivererOptions) {
    this.#options = options;
  }

  async deliver(row: ClaimedRow): Promise<Outcome> {
    const targets = this.#options.handlers.get(row.type);
    if (targets === undefined) return this.#withoutHandler(row);
    let payloadJson = row.payloadJson;
    if (payloadJson === undefined) {
      try {
        payloadJson = await this.#options.loadPayload(row.seq);
      } catch {
        // The database's failure, not the event's.
      }
      if (payloadJson === undefined) return { kind: 'release', done: row.done };
    }
    const event = new DeliveredEvent(row, payloadJson);
    const only = targets[0];
    if (targets.length === 1 && only && row.done.length === 0) return this.#toOne(event, row, only);
    return this.#toMany(event, row, targets);
  }

  async #toOne(
    event: DeliveredEvent,
    row: ClaimedRow,
    [name, handler]: readonly [string, Handler],
  ): Promise<Outcome> {
    const thrown = await this.#call(event, row, name, handler);
    if (thrown === undefined) return { kind: 'ok', targets: [name] };
    if (thrown === abandoned) return { kind: 'release', done: row.done };
    return toFailure(row, [], [thrown]);
  }

  async #toMany(
    event: DeliveredEvent,
    row: ClaimedRow,
    targets: readonly (readonly [string, Handler])[],
  ): Promise<Outcome> {
    const done = [...row.done];
    const failures: TargetFailure[] = [];
    let released = false;
    await Promise.all(
      targets
        .filter(([name]) => !row.done.includes(name))
        .map(async ([name, handler]) => {
          const thrown = await this.#call(event, row, name, handler);
          if (thrown === undefined) done.push(name);
          else if (thrown === abandoned) released = true;
          else failures.push(thrown);
        }),
    );
    if (failures.length > 0) return toFailure(row, done, failures);
    return released ? { kind: 'release', done } : { kind: 'ok', targets: done };
  }

  /** Gives up all deliveries under way. Those that still finish count; the others go back without an attempt. */
  abandon(reason: Error): void {
    for (const call of this.#calls) call.abandon(reason);
  }

  /** Calls one handler. Answers nothing when it worked, `abandoned` when the relay gave up, else what went wrong. */
  async #call(
    event: DeliveredEvent,
    row: ClaimedRow,
    name: string,
    handler: Handler,
  ): Promise<TargetFailure | typeof abandoned | undefined> {
    const call = new Call(row, name, this.#options.deliverTimeoutMs);
    this.#calls.add(call);
    try {
      const returned = handler(event, call);
      // A handler that never settles must not hold its slot for good, hence the race; one that returns no promise
      // needs none.
      if (isThenable(returned)) await call.race(returned);
      return undefined;
    } catch (thrown) {
      return call.abandoned ? abandoned : { name, thrown };
    } finally {
      call.end();
      this.#calls.delete(call);
    }
  }

  #withoutHandler(row: ClaimedRow): Outcome {
    const error = new PostcommitError('POSTCOMMIT_E_NO_HANDLER', `The type is ${row.type}.`);
    const errors = [{ target: null, code: error.code, error: errorText(error) }];
    return this.#options.noHandler === 'fail'
      ? { kind: 'reject', reason: 'no_handler', done: row.done, errors }
      : { kind: 'retry', done: row.done, errors };
  }
}

const abandoned = Symbol('abandoned');

interface TargetFailure {
  name: string;
  thrown: unknown;
}

function toFailure(row: ClaimedRow, done: readonly string[], failures: TargetFailure[]): Outcome {
  const errors = failures.map(({ name, thrown }) => ({
    target: name,
    code: thrown instanceof PostcommitError ? thrown.code : 'POSTCOMMIT_E_HANDLER_FAILED',
    error: errorText(thrown),
  }));
  const all = [...new Set([...row.done, ...done])];
  return failures.some(({ thrown }) => thrown instanceof Reject)
    ? { kind: 'reject', reason: 'rejected', done: all, errors }
    : { kind: 'retry', done: all, errors };
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | null | undefined)?.then === 'function';
}

/** How long an abandoned handler may take to notice its aborted signal before its event is given back anyway. */
const abandonGraceMs = 250;

/** The context of one handler call. Its signal exists only once the handler asks for it. */
class Call {
  readonly attempt: number;
  readonly idempotencyKey: string;
  readonly handler: string;
  readonly #timeoutMs: number;
  #controller: AbortController | undefined;
  #abortedWith: unknown;
  #timer: NodeJS.Timeout | undefined;
  #giveUp: ((reason: unknown) => void) | undefined;
  abandoned = false;

  constructor(row: ClaimedRow, name: string, timeoutMs: number) {
    this.attempt = row.attempts + 1;
    this.idempotencyKey = `${row.id}:${name}`;
    this.handler = name;
    this.#timeoutMs = timeoutMs;
  }

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#abortedWith !== undefined) this.#controller.abort(this.#abortedWith);
    }
    return this.#controller.signal;
  }

  race(work: PromiseLike<unknown>): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      this.#giveUp = reject;
      this.#timer = setTimeout(() => {
        const error = new PostcommitError('POSTCOMMIT_E_DELIVER_TIMEOUT', `It is ${this.#timeoutMs} ms.`);
        reject(error);
        this.#abort(error);
      }, this.#timeoutMs);
      work.then(() => resolve(), reject);
    });
  }

  /** The relay no longer wants the result: the handler is told, and then has a moment to finish. */
  abandon(reason: unknown): void {
    if (this.abandoned) return;
    this.abandoned = true;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#giveUp?.(reason), abandonGraceMs);
    this.#abort(reason);
  }

  end(): void {
    clearTimeout(this.#timer);
  }

  #abort(reason: unknown): void {
    this.#abortedWith = reason;
    this.#controller?.abort(reason);
  }
}
