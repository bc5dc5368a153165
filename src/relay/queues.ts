import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import { inlineBytesMax } from '../outbox/delivering/load-payload.ts';
import { defaultQueue, isQueueName, queueNameRule } from '../queue-name.ts';

/** The queues that a relay works: how many events of each may be in handlers at once, by name. */
export type RelayQueues = Readonly<Record<string, number>>;

const queuesMax = 100;
export const slotsMax = 10_000;
/** The default of `inFlightMax`. */
export const inFlightDefault = 100;

/** Checks the option `queues`. Without it, the relay works the default queue with `inFlightMax`. */
export function resolveQueues(given: unknown, inFlightMax: number | undefined): ReadonlyMap<string, number> {
  if (given === undefined) return new Map([[defaultQueue, inFlightMax ?? inFlightDefault]]);
  if (inFlightMax !== undefined) throw fail('Give queues or inFlightMax, not both.');
  if (typeof given !== 'object' || given === null || Array.isArray(given)) throw fail(`queues must be ${example}.`);
  const queues = Object.entries(given);
  if (queues.length === 0) throw fail(`queues is empty, so the relay would deliver nothing: ${example}.`);
  if (queues.length > queuesMax) throw fail(`queues has at most ${queuesMax} names. Got ${queues.length}.`);
  for (const [name, slots] of queues) {
    const quoted = JSON.stringify(name.slice(0, 120));
    if (!isQueueName(name)) throw fail(`A name in queues is ${queueNameRule}. Got ${quoted}.`);
    if (!Number.isInteger(slots) || slots < 1 || slots > slotsMax) {
      throw fail(`queues[${quoted}] must be a whole number from 1 to ${slotsMax}. Got ${shown(slots)}.`);
    }
  }
  return new Map(queues);
}

/** Refuses limits that leave a queue too little when they are divided. */
export function requireRoom(
  queues: ReadonlyMap<string, number>,
  limits: { prefetchMax: number; prefetchBytesMax: number; inFlightBytesMax: number },
): void {
  const least = { prefetchMax: 2, prefetchBytesMax: 2 * inlineBytesMax, inFlightBytesMax: 4 * inlineBytesMax };
  for (const name of Object.keys(least) as (keyof typeof least)[]) {
    const min = least[name] * queues.size;
    if (limits[name] < min)
      throw fail(`${name} must be at least ${min} for ${queues.size} queues. Got ${limits[name]}.`);
  }
}

const example = 'an object of names and limits, e.g. { default: 100, reports: 2 }';

function fail(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
