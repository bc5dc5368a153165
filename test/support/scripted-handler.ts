import { setTimeout as sleep } from 'node:timers/promises';
import type { Handler, HandlerContext } from '../../src/relay/deliver/handlers.ts';
import { Reject } from '../../src/relay/event/reject.ts';
import type { DeliveredEvent } from '../../src/wire/delivered-event.ts';
import type { Journal } from './journal.ts';

/** What the handler is to do with an event: its payload says it, so that it is the same in every process. */
export interface Script {
  /** How long the work takes. */
  workMs?: number;
  /** How many attempts fail first. */
  failTimes?: number;
  /** Rejects it for good. */
  reject?: boolean;
  /** Never settles, in the relay of this name. */
  hangIn?: string;
  /** Blocks the event loop for so long, in the relay of this name. */
  block?: { relay: string; ms: number };
  /** Ends the process, as running out of memory does: nothing is cleaned up. */
  kill?: boolean;
}

/** Does what the payload says and writes it down. `work`: what it also waits for, between its begin and its end. */
export function scriptedHandler(
  journal: Journal,
  relay: string,
  work: (event: DeliveredEvent<Script | null>) => Promise<void> = async () => {},
): Handler<Script | null> {
  return async (event: DeliveredEvent<Script | null>, ctx: HandlerContext) => {
    const { workMs = 0, failTimes = 0, reject = false, hangIn, block, kill = false } = event.payload ?? {};
    const { seq, id, key } = event;
    const { attempt, idempotencyKey, handler } = ctx;
    const note = (phase: 'begin' | 'end' | 'fail') =>
      journal.write({ phase, relay, seq, id, key, handler, attempt, idempotencyKey });
    note('begin');
    if (kill) process.kill(process.pid, 'SIGKILL');
    if (hangIn === relay) await new Promise<never>(() => {});
    if (block?.relay === relay) {
      const until = performance.now() + block.ms;
      while (performance.now() < until);
    }
    if (workMs > 0) await sleep(workMs);
    await work(event);
    if (reject || attempt <= failTimes) {
      note('fail');
      throw reject ? new Reject('the script says so') : new Error(`attempt ${attempt} fails`);
    }
    note('end');
  };
}
