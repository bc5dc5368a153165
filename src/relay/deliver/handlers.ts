import { PostcommitError } from '../../errors.ts';
import type { DeliveredEvent } from '../../wire/delivered-event.ts';

/** What a handler gets besides the event. */
export interface HandlerContext {
  /**
   * Aborted when the delivery takes longer than `deliverTimeoutMs`, an operator cancels the event (the reason has the code
   * POSTCOMMIT_E_EVENT_CANCELLED), the relay stops, or its lease is lost.
   */
  readonly signal: AbortSignal;
  /** 1 for the first try. */
  readonly attempt: number;
  /**
   * The same for every attempt of this handler with this event, replays included (`event.replayId` distinguishes these). Pass
   * it to the system that deduplicates on your side.
   */
  readonly idempotencyKey: string;
  /** The handler's own name. */
  readonly handler: string;
  /**
   * Reports how far this call is, for operators: a fraction from 0 to 1, and a note of at most 500 characters (a longer one is
   * cut). `postcommit status`, `postcommit events <id>` and `outbox.admin` show the last report. Costs next to nothing: a
   * relay writes the reports of all its handlers together, at most once a second. Without effect once the call has ended.
   * For example `ctx.progress(0.4, 'page 4 of 10')`.
   */
  progress(fraction: number, note?: string): void;
  /**
   * Gives this call more time: its time limit ends in `ms` from now, or when it would have ended anyway, whichever is later.
   * At most 86,400,000 (a day) per call; call it again for longer work. Without effect once the limit is over or the relay
   * has abandoned the call.
   */
  extendTimeout(ms: number): void;
}

/**
 * Handles an event. Returning means `delivered`; throwing means `failed`, and the relay retries; `throw new Reject(…)` means
 * `rejected`, and the event becomes a dead letter.
 * It may be called again with the same event (at least once), so it should be idempotent.
 */
// biome-ignore lint/suspicious/noExplicitAny: a handler names its own payload type; the relay cannot know it.
export type Handler<Payload = any> = (event: DeliveredEvent<Payload>, ctx: HandlerContext) => unknown;

/** Handlers by event type, each with a name of its own. Progress is kept by that name, so keep it stable. */
export type Handlers = Readonly<Record<string, Readonly<Record<string, Handler>>>>;

/** How a handler is named among the targets of a relay. A destination's name has no colon, so the two never collide. */
export function handlerTarget(type: string, handler: string): string {
  return `${type}:${handler}`;
}

/** Checks the handlers once and returns them as a list per type. */
export function resolveHandlers(handlers: Handlers): Map<string, [name: string, handler: Handler][]> {
  const example = "e.g. { 'order.created': { 'send-receipt': async (event) => {} } }";
  if (!hasNames(handlers)) throw badHandlers(`handlers must be an object of event types, ${example}`);
  const byType = new Map<string, [string, Handler][]>();
  for (const [type, named] of Object.entries(handlers)) {
    if (!hasNames(named)) throw badHandlers(`handlers['${type}'] must be an object of named handlers, ${example}`);
    const list = Object.entries(named);
    for (const [name, handler] of list) {
      if (typeof handler !== 'function') throw badHandlers(`handlers['${type}']['${name}'] must be a function`);
      if (name === '' || name.includes('\0') || !name.isWellFormed()) {
        throw badHandlers(`handlers['${type}'] has a name that is empty or cannot be stored as text`);
      }
    }
    if (list.length > 0) byType.set(type, list);
  }
  return byType;
}

/** An array or a Map would pass as an object with numbers as names, or without names. */
function hasNames(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !(Symbol.iterator in value);
}

function badHandlers(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `${detail}.`);
}
