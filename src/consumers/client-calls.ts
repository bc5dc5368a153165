import { untilAborted } from '../publishers/failure.ts';

/** Resolves like the call, or fails when its time is over. `late` gets what the call returns after that. */
export type InTime = <T>(call: Promise<T>, late?: (value: T) => unknown) => Promise<T>;

/** For calls to a client that have `timeoutMs` together, and no time at all once the consumer stops: a client may never answer. */
export function inTime(timeoutMs: number, stopping: AbortSignal): InTime {
  const deadline = AbortSignal.timeout(timeoutMs);
  return async (call, late) => {
    try {
      return await untilAborted(untilAborted(call, stopping), deadline);
    } catch (error) {
      if (late !== undefined) call.then(late).catch(() => {});
      throw error;
    }
  };
}

const answerTimeoutMs = 5_000;

/** Waits for the answer of a broker, but not for that of a connection that is dead and not known to be. Returns whether it came. */
export async function answered(call: Promise<unknown>): Promise<boolean> {
  return untilAborted(call, AbortSignal.timeout(answerTimeoutMs)).then(
    () => true,
    () => false,
  );
}
