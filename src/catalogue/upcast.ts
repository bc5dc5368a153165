import { PostcommitError } from '../errors.ts';
import type { DefinedEvent, EventCatalogue } from './catalogue.ts';
import { findDefinition } from './catalogue.ts';
import { type ParsedPayload, parsePayload, thrownText } from './parse-payload.ts';

/**
 * What to do with an event whose version is newer than the catalogue's, because its emitter was deployed first:
 * - `retry`: leave it to a reader that knows the version;
 * - `deadLetter`: it becomes a dead letter;
 * - `deliver`: pass it on as it was stored, unchecked.
 */
export type UnknownVersions = 'retry' | 'deadLetter' | 'deliver';

/** An event as it was emitted. */
export interface StoredPayload {
  readonly type: string;
  readonly version: number;
  /** Parsed JSON. An upcast may change it. */
  readonly payload: unknown;
}

/** The payload of an event in the newest version, and that version. */
export interface NewestPayload {
  readonly payload: unknown;
  readonly version: number;
}

/**
 * Brings the payload of a stored event to the newest version of its type: runs the upcasts from its version on, then the schema,
 * and returns the output of the schema. A type that the catalogue does not list stays as it is. Returns a promise only where the schema
 * is asynchronous.
 *
 * Throws (or rejects with) a PostcommitError: POSTCOMMIT_E_UPCAST_FAILED, POSTCOMMIT_E_STORED_PAYLOAD_INVALID, which are final, or
 * POSTCOMMIT_E_UNKNOWN_VERSION unless `unknownVersions` is `deliver`.
 *
 * @example
 * const { payload, version } = await readEvent(events, { type: 'order.created', version: 1, payload: JSON.parse('{"total": 7}') });
 */
export function readEvent(
  catalogue: EventCatalogue | undefined,
  { type, version, payload }: StoredPayload,
  unknownVersions: UnknownVersions = 'retry',
): NewestPayload | Promise<NewestPayload> {
  const definition = findDefinition(catalogue, type);
  if (definition === undefined) return { payload, version };
  if (version > definition.version || !(Number.isInteger(version) && version >= 1)) {
    if (unknownVersions === 'deliver') return { payload, version };
    const detail = `It is version ${version} of ${type}; the newest in the catalogue is ${definition.version}.`;
    throw new PostcommitError('POSTCOMMIT_E_UNKNOWN_VERSION', detail);
  }
  const upcast = runUpcasts(definition, { type, version, payload });
  const from = version === definition.version ? `version ${version}` : `upcast from version ${version}`;
  const parsed = parsePayload(definition, upcast, (detail, cause) => {
    return new PostcommitError('POSTCOMMIT_E_STORED_PAYLOAD_INVALID', `${type}, ${from}: ${detail}.`, { cause });
  });
  const toNewest = ({ payload }: ParsedPayload): NewestPayload => ({ payload, version: definition.version });
  return parsed instanceof Promise ? parsed.then(toNewest) : toNewest(parsed);
}

/** The payload after the upcasts from its version on, as the newest schema takes it. */
export function runUpcasts(definition: DefinedEvent, { type, version, payload }: StoredPayload): unknown {
  let current = payload;
  for (let from = version; from < definition.version; from++) {
    const refuse = (detail: string, cause?: unknown) =>
      new PostcommitError('POSTCOMMIT_E_UPCAST_FAILED', `${type}, version ${from} to ${from + 1}: ${detail}.`, {
        cause,
      });
    try {
      current = definition.upcast[from]?.(current);
    } catch (error) {
      throw refuse(`it threw ${thrownText(error)}`, error);
    }
    if (current instanceof Promise) {
      current.catch(() => {}); // Its result is not used.
      throw refuse('it returned a promise; an upcast is synchronous');
    }
  }
  return current;
}
