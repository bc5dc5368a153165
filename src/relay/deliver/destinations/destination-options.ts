import { PostcommitError } from '../../../errors.ts';
import { shown } from '../../../format.ts';
import type { Publisher } from '../../../publishers/publisher.ts';
import { publisherMistake, resemblesPublisher } from '../../../publishers/publisher-mistake.ts';
import { unknownOption } from '../../../suggest.ts';
import { envelope } from '../../../wire/envelope.ts';
import type { Serializer } from '../../../wire/serializer.ts';

/** A destination: the publisher, and how the relay treats it. */
export interface DestinationSettings {
  publisher: Publisher;
  /** What events look like on the wire. Default: `envelope()`. */
  serializer?: Serializer;
  /**
   * A batch that takes longer means that the destination is down. Must be longer than the publisher's own time limits
   * together (`answerMsMax`). Default 10,000, or 2,000 more than those if that is longer.
   */
  publishTimeoutMs?: number;
  /**
   * The most that a receiver's `Retry-After` counts for. The event's aggregate waits as long, at every destination, so a
   * receiver must not choose it freely. Default 3,600,000 (an hour).
   */
  retryAfterMaxMs?: number;
  /** After an outage, or a pause: how many events of its shelf are sent per second at most. Default 10,000. */
  drainRateMax?: number;
  /** The pause before the first probe of a destination that is down; it doubles with each that fails. Default 1,000. */
  probeDelayMs?: number;
  /** The longest pause between two probes. Default 30,000. */
  probeDelayMsMax?: number;
}

/** Destinations by name. Progress and outages are kept by that name, so keep it stable. */
export type Destinations = Readonly<Record<string, Publisher | DestinationSettings>>;

export type ResolvedDestination = Required<DestinationSettings> & { name: string };

const defaults = {
  publishTimeoutMs: 10_000,
  retryAfterMaxMs: 3_600_000,
  drainRateMax: 10_000,
  probeDelayMs: 1_000,
  probeDelayMsMax: 30_000,
};
/** How much longer than the publisher the relay waits by default. */
const answerGraceMs = 2_000;
const limits: Record<keyof typeof defaults, number> = {
  publishTimeoutMs: 3_600_000,
  retryAfterMaxMs: 2_592_000_000,
  drainRateMax: 1_000_000,
  probeDelayMs: 3_600_000,
  probeDelayMsMax: 3_600_000,
};

export function resolveDestinations(given: unknown, handlerNames: ReadonlySet<string>): ResolvedDestination[] {
  if (typeof given !== 'object' || given === null || Symbol.iterator in given) {
    throw bad('destinations must be an object of publishers by name, e.g. { events: kafka({ brokers }) }.');
  }
  return Object.entries(given as Destinations).map(([name, value]) => {
    if (name === '' || name.length > 200 || /[\0:]/.test(name) || !name.isWellFormed()) {
      throw bad('a name in destinations must be a text of 1 to 200 characters without a colon.');
    }
    if (handlerNames.has(name))
      throw bad(`destinations: '${name}' is the name of a handler and of a destination. Rename one.`);
    // Progress of several topics of a destination is kept as `destination:topic`, and would count for the handler.
    for (const handler of handlerNames) {
      if (!handler.startsWith(`${name}:`)) continue;
      throw bad(
        `destinations: the name of the handler '${handler}' begins with that of the destination '${name}' and a colon, as the ` +
          'progress of its topics does. Rename one.',
      );
    }
    return resolveDestination(name, value);
  });
}

function resolveDestination(name: string, value: Publisher | DestinationSettings): ResolvedDestination {
  const settings: DestinationSettings = resemblesPublisher(value) ? { publisher: value as Publisher } : value;
  if (!resemblesPublisher(settings?.publisher)) {
    throw bad(`destinations['${name}'] must be a publisher, e.g. kafka({ brokers }), or { publisher, ... }.`);
  }
  // Otherwise a missing member would fail while events are delivered, or never: with a limit of NaN no batch is sent.
  const mistake = publisherMistake(settings.publisher);
  if (mistake !== undefined) throw bad(`The publisher of destinations['${name}'] breaks its contract: ${mistake}`);
  const { publisher, serializer = envelope(), ...rest } = settings;
  if (typeof serializer?.serialize !== 'function') throw bad(`destinations['${name}'].serializer has no serialize().`);
  const { answerMsMax = 0 } = publisher.capabilities;
  const derivedMs = answerMsMax === 0 ? 0 : answerMsMax + answerGraceMs;
  const numbers = { ...defaults, publishTimeoutMs: Math.max(defaults.publishTimeoutMs, derivedMs) };
  const known = ['publisher', 'serializer', ...Object.keys(defaults)];
  const unknown = unknownOption(settings, known, `destinations['${name}']`);
  if (unknown !== undefined) throw bad(unknown);
  for (const [option, number] of Object.entries(rest)) {
    const max = limits[option as keyof typeof defaults];
    if (number === undefined) continue;
    if (!Number.isInteger(number) || number < 1 || number > max) {
      throw bad(`destinations['${name}'].${option} must be a whole number from 1 to ${max}. Got ${shown(number)}.`);
    }
    numbers[option as keyof typeof defaults] = number;
  }
  if (numbers.publishTimeoutMs <= answerMsMax) {
    const needed = `the ${answerMsMax} ms that ${publisher.kind} may take by its own time limits`;
    throw bad(
      `destinations['${name}'].publishTimeoutMs (${numbers.publishTimeoutMs}) must be above ${needed}: otherwise what ` +
        'makes one event fail would count as an outage of the destination.',
    );
  }
  if (numbers.probeDelayMs > numbers.probeDelayMsMax) {
    throw bad(`destinations['${name}'].probeDelayMs is above probeDelayMsMax (${numbers.probeDelayMsMax}).`);
  }
  return { name, publisher, serializer, ...numbers };
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
