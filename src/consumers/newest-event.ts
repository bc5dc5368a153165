import type { EventCatalogue, EventTypeOf, PayloadOutput, SchemaOf } from '../catalogue/catalogue.ts';
import { findDefinition } from '../catalogue/catalogue.ts';
import { readEvent, type UnknownVersions } from '../catalogue/upcast.ts';
import { PostcommitError } from '../errors.ts';
import type { ReceivedEvent } from '../wire/received-event.ts';

/** The event that a consumer with this catalogue gets: compare `event.type`. Without a catalogue: any event. */
export type EventToConsume<Catalogue extends EventCatalogue> = string extends keyof Catalogue
  ? ReceivedEvent
  : {
      [Type in EventTypeOf<Catalogue>]: ReceivedEvent<Type, PayloadOutput<SchemaOf<Catalogue, Type>>>;
    }[EventTypeOf<Catalogue>];

/**
 * The event with its payload in the newest version of the catalogue; `undefined` for a type that the catalogue does not list. Fails with
 * the errors of `readEvent`.
 */
export async function readNewest(
  event: ReceivedEvent,
  events: EventCatalogue | undefined,
  unknownVersions: UnknownVersions,
): Promise<ReceivedEvent | undefined> {
  if (events === undefined) return event;
  if (findDefinition(events, event.type) === undefined) return undefined;
  const stored = { type: event.type, version: event.schemaVersion, payload: event.payload };
  const { payload, version } = await readEvent(events, stored, unknownVersions);
  return { ...event, payload, schemaVersion: version };
}

/** Resolves like `reading`, or fails when the schema of the type, if it is asynchronous, has not settled after `timeoutMs`. */
export async function readWithin<T>(timeoutMs: number, reading: Promise<T>, type: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const detail = `timeoutMs is ${timeoutMs}, and the schema of ${type} has not settled.`;
      reject(new PostcommitError('POSTCOMMIT_E_WORK_TIMEOUT', detail));
    }, timeoutMs);
    timer.unref(); // A consumer that has stopped does not wait for the schema.
  });
  try {
    return await Promise.race([reading, late]);
  } finally {
    clearTimeout(timer);
  }
}
