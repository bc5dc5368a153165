import type { EventCatalogue } from '../../catalogue/catalogue.ts';
import { findDefinition } from '../../catalogue/catalogue.ts';
import type { NewestPayload, UnknownVersions } from '../../catalogue/upcast.ts';
import { readEvent } from '../../catalogue/upcast.ts';
import { PostcommitError } from '../../errors.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import { DeliveredEvent } from '../../wire/delivered-event.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import { factsOf, logFields } from '../event/event-facts.ts';
import type { TargetOutcome } from '../event/outcome.ts';

export interface EventReaderOptions {
  events: EventCatalogue;
  unknownVersions: UnknownVersions;
  logger: Logger;
}

/** Events of a version that the catalogue of a relay lacks wait for another relay. */
export interface UnknownVersion {
  type: string;
  version: number;
  /** The newest version of the type in the catalogue. */
  newest: number;
}

/** An event that waits is tried every second. One that has not been for this long was delivered elsewhere. */
const unknownForMs = 5_000;
const unknownMax = 20;

/** The event as a handler gets it; or the outcome of a handler that cannot get it. */
export type ReadResult = DeliveredEvent | TargetOutcome;

/**
 * Reads events for handlers: brings payloads to the newest version of the catalogue. Called for each handler, so that a handler that
 * changes its payload does not affect the others. Nothing is thrown.
 */
export class EventReader {
  readonly #options: EventReaderOptions;
  readonly #log = new SparseLog();
  /** By type and version; those met last are last. */
  readonly #unknown = new Map<string, UnknownVersion & { readonly at: number }>();

  constructor(options: EventReaderOptions) {
    this.#options = options;
  }

  /** The versions that events wait for which this relay has left to another one in the last seconds; at most 20. */
  get unknownVersions(): UnknownVersion[] {
    const since = performance.now() - unknownForMs;
    return [...this.#unknown.values()].flatMap(({ at, ...unknown }) => (at < since ? [] : [unknown]));
  }

  read(event: DeliveredEvent, claimed: ClaimedEvent): ReadResult | Promise<ReadResult> {
    const { events, unknownVersions } = this.#options;
    const { type, storedVersion, payloadJson } = event;
    const definition = findDefinition(events, type);
    // The payload stays text until the handler looks at it.
    if (definition === undefined) return event;
    if (definition.schema === undefined && definition.version === storedVersion) return event;
    const toEvent = (newest: NewestPayload) => new DeliveredEvent(claimed, payloadJson, newest);
    const toOutcome = (error: unknown) => this.#refuse(event, claimed, error);
    try {
      const stored = { type, version: storedVersion, payload: JSON.parse(payloadJson) as unknown };
      const newest = readEvent(events, stored, unknownVersions);
      return newest instanceof Promise ? newest.then(toEvent, toOutcome) : toEvent(newest);
    } catch (error) {
      return toOutcome(error);
    }
  }

  #refuse({ type, storedVersion }: DeliveredEvent, claimed: ClaimedEvent, error: unknown): TargetOutcome {
    const isUnknown = error instanceof PostcommitError && error.code === 'POSTCOMMIT_E_UNKNOWN_VERSION';
    if (!isUnknown || this.#options.unknownVersions !== 'retry') return { kind: 'rejected', error };
    this.#note(type, storedVersion);
    this.#log.say(type, (suppressed) =>
      this.#options.logger.warn(
        { ...logFields(factsOf(claimed)), version: storedVersion, suppressed },
        'event version is newer than the catalogue, leaving it to a relay that has that version',
      ),
    );
    return { kind: 'released', isForeign: true };
  }

  #note(type: string, version: number): void {
    const name = `${version} ${type}`;
    this.#unknown.delete(name);
    const newest = findDefinition(this.#options.events, type)?.version ?? 0;
    this.#unknown.set(name, { type, version, newest, at: performance.now() });
    const [oldest] = this.#unknown.keys();
    if (this.#unknown.size > unknownMax && oldest !== undefined) this.#unknown.delete(oldest);
  }
}
