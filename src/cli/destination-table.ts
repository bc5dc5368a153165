import { duration, quantity } from '../format.ts';
import type { DestinationInfo } from '../outbox/operating/list-destinations.ts';
import type { Output } from './output.ts';
import { instant, printable } from './output.ts';

/** The database stops counting the events that wait for a destination here. */
const countedMax = 100_000;

/** `12 events`, or `at least 100,000 events`. */
export function waitingEvents({ waiting }: DestinationInfo): string {
  return `${waiting >= countedMax ? 'at least ' : ''}${quantity(waiting, 'event')}`;
}

/** The state of a destination, since when and why: `down since …: connect ECONNREFUSED`. */
export function describeDestination(destination: DestinationInfo, now: Date): string {
  const { state, downSince, error, pausedAt, reason, waiting, relays } = destination;
  const unserved = relays === 0 ? ', and no live relay has it' : '';
  if (state === 'up' && unserved) return `up${unserved}`;
  if (state === 'up') return waiting > 0 ? 'up; relays are sending the events that waited for it' : 'up';
  const [since, why] = state === 'paused' ? [pausedAt, reason] : [downSince, error];
  const when = since ? ` since ${instant(since)} (${duration(Math.max(0, now.getTime() - since.getTime()))})` : '';
  return `${state}${when}${why ? `: ${printable(why)}` : ''}${unserved}`;
}

/** Prints a table of destinations. */
export function printDestinations(output: Output, destinations: readonly DestinationInfo[], now: Date): void {
  output.table(
    ['DESTINATION', 'STATE', 'RELAYS', 'WAITING', 'OLDEST', 'SINCE', 'NEXT PROBE', 'WHY'],
    destinations.map((destination) => {
      const { name, state, relays, waiting, oldestWaitingAt, downSince, pausedAt, probeAt, error, reason } =
        destination;
      const since = state === 'paused' ? pausedAt : downSince;
      return [
        name,
        state === 'up' && waiting > 0 && relays > 0 ? 'draining' : state,
        String(relays),
        `${waiting.toLocaleString('en-US')}${waiting >= countedMax ? '+' : ''}`,
        oldestWaitingAt ? duration(Math.max(0, now.getTime() - oldestWaitingAt.getTime())) : '-',
        since ? instant(since) : '-',
        state === 'down' && probeAt ? untilProbe(probeAt, now) : '-',
        (state === 'paused' ? reason : error) ?? '-',
      ];
    }),
  );
}

function untilProbe(probeAt: Date, now: Date): string {
  const wait = probeAt.getTime() - now.getTime();
  return wait > 0 ? `in ${duration(wait)}` : 'due';
}
