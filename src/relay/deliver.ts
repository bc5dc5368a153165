import { PostcommitError } from '../errors.ts';
import type { ClaimedRow } from '../outbox/claim.ts';
import type { DeadReason, TargetError } from '../outbox/fail.ts';
import { errorText } from '../telemetry/error-text.ts';
import { DeliveredEvent } from './delivered-event.ts';
import { HandlerCall } from './handler-call.ts';
import type { Handler } from './handlers.ts';
import { isReject } from './handlers.ts';

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

/** How often deliveries are checked against their time limit, at the most. */
const sweepMsMax = 250;

/**
 * Brings one event to its targets, and answers through a callback exactly once: every failure is an outcome, nothing is
 * thrown. Callbacks instead of promises, and one sweep for all time limits instead of a timer each, because this is the
 * hot path and garbage is what it costs most.
 */
export class Deliverer {
  readonly #options: DelivererOptions;
  readonly #calls = new Set<HandlerCall>();
  /** For events that went to the only handler of their type: one list for all of them. */
  readonly #soleTargets = new Map<string, readonly string[]>();
  #sweeper: NodeJS.Timeout | undefined;

  constructor(options: DelivererOptions) {
    this.#options = options;
    for (const [type, targets] of options.handlers) {
      if (targets.length === 1) this.#soleTargets.set(type, [(targets[0] as [string, Handler])[0]]);
    }
  }

  deliver(row: ClaimedRow, done: (outcome: Outcome) => void): void {
    const targets = this.#options.handlers.get(row.type);
    if (row.id === '') {
      done(rejected(row, new PostcommitError('POSTCOMMIT_E_NOT_FOUND', 'It was deleted from outbox_events.')));
    } else if (targets === undefined) {
      done(this.#withoutHandler(row));
    } else if (row.payloadJson === undefined) {
      this.#options.loadPayload(row.seq).then(
        (payloadJson) => this.#toTargets(row, payloadJson, targets, done),
        () => done({ kind: 'release', done: row.done }), // The database's failure, not the event's.
      );
    } else {
      this.#toTargets(row, row.payloadJson, targets, done);
    }
  }

  /** Gives up all deliveries under way. Those that still finish count; the others go back without an attempt. */
  abandon(reason: Error): void {
    for (const call of this.#calls) call.abandon(reason);
  }

  #toTargets(
    row: ClaimedRow,
    payloadJson: string | undefined,
    targets: readonly (readonly [string, Handler])[],
    done: (outcome: Outcome) => void,
  ): void {
    if (payloadJson === undefined) {
      done({ kind: 'release', done: row.done });
      return;
    }
    const sole = targets[0];
    if (targets.length === 1 && sole && row.done.length === 0) {
      this.#call(new DeliveredEvent(row, payloadJson), row, sole, (call) => {
        const soleTargets = this.#soleTargets.get(row.type) ?? [sole[0]];
        done(call.result === 'ok' ? { kind: 'ok', targets: soleTargets } : toOutcome(row, [call]));
      });
      return;
    }
    const open = targets.filter(([name]) => !row.done.includes(name));
    if (open.length === 0) {
      done({ kind: 'ok', targets: row.done });
      return;
    }
    const ended: HandlerCall[] = [];
    for (const target of open) {
      // An event of its own for each: what one handler changes is no business of the others.
      this.#call(new DeliveredEvent(row, payloadJson), row, target, (call) => {
        ended.push(call);
        if (ended.length === open.length) done(toOutcome(row, ended));
      });
    }
  }

  #call(
    event: DeliveredEvent,
    row: ClaimedRow,
    target: readonly [string, Handler],
    done: (call: HandlerCall) => void,
  ): void {
    const call = new HandlerCall(row, target[0], this.#options.deliverTimeoutMs, (ended) => {
      this.#calls.delete(ended);
      done(ended);
    });
    this.#calls.add(call);
    this.#sweep();
    call.run(event, target[1]);
  }

  #sweep(): void {
    if (this.#sweeper !== undefined) return;
    this.#sweeper = setTimeout(
      () => {
        this.#sweeper = undefined;
        const now = performance.now();
        for (const call of this.#calls) call.checkTime(now);
        if (this.#calls.size > 0) this.#sweep();
      },
      Math.min(sweepMsMax, this.#options.deliverTimeoutMs),
    );
  }

  #withoutHandler(row: ClaimedRow): Outcome {
    const error = new PostcommitError('POSTCOMMIT_E_NO_HANDLER', `The type is ${row.type}.`);
    if (this.#options.noHandler === 'fail') return { ...rejected(row, error), reason: 'no_handler' };
    return { kind: 'retry', done: row.done, errors: [toTargetError(null, error)] };
  }
}

function rejected(row: ClaimedRow, error: PostcommitError) {
  return { kind: 'reject', reason: 'rejected', done: row.done, errors: [toTargetError(null, error)] } satisfies Outcome;
}

/** All targets together: one that rejects decides, else one that failed, else one that was given up. */
function toOutcome(row: ClaimedRow, calls: readonly HandlerCall[]): Outcome {
  const done = [...row.done, ...calls.filter((call) => call.result === 'ok').map((call) => call.handler)];
  const failed = calls.filter((call) => call.result === 'failed');
  if (failed.length === 0) {
    return calls.every((call) => call.result === 'ok') ? { kind: 'ok', targets: done } : { kind: 'release', done };
  }
  // What decided comes last: that is what a dead letter shows.
  const rejected = failed.filter((call) => isReject(call.thrown));
  const inOrder = [...failed.filter((call) => !rejected.includes(call)), ...rejected];
  const errors = inOrder.map((call) => toTargetError(call.handler, call.thrown));
  return rejected.length > 0 ? { kind: 'reject', reason: 'rejected', done, errors } : { kind: 'retry', done, errors };
}

function toTargetError(target: string | null, thrown: unknown): TargetError {
  return { target, code: codeOf(thrown), error: errorText(thrown) };
}

function codeOf(thrown: unknown): string {
  try {
    if (thrown instanceof PostcommitError) return thrown.code;
  } catch {
    // A proxy may throw when it is asked.
  }
  return 'POSTCOMMIT_E_HANDLER_FAILED';
}
