import type { StandardSchemaV1 } from '@standard-schema/spec';
import { PostcommitError } from '../errors.ts';

/** What is known of one event type. */
export interface EventDefinition {
  /** The schema version written with the event. Default 1. */
  version?: number;
  /** Checks the payload before it is written. Any Standard Schema library fits: zod, valibot, arktype. */
  schema?: StandardSchemaV1;
  /** The queue that delivers the event, unless `emit` says otherwise. Default: what `queueOf` of the outbox returns. */
  queue?: string;
}

/** The event types a service may emit. A type that is not listed is refused. */
export type EventCatalogue = Readonly<Record<string, EventDefinition>>;

/** Finds the definition of a type, or refuses it. */
export function definitionOf(catalogue: EventCatalogue | undefined, type: string): EventDefinition | undefined {
  if (catalogue === undefined) return undefined;
  if (Object.hasOwn(catalogue, type)) return catalogue[type];
  const known = Object.keys(catalogue).slice(0, 20).join(', ');
  throw new PostcommitError('POSTCOMMIT_E_UNKNOWN_EVENT_TYPE', `Got ${JSON.stringify(type)}; known are: ${known}.`);
}

/** Refuses a payload that does not match its schema. */
export async function checkPayload(
  definition: EventDefinition | undefined,
  type: string,
  payload: unknown,
): Promise<void> {
  if (definition?.schema === undefined) return;
  const refuse = (detail: string, cause?: unknown) =>
    new PostcommitError('POSTCOMMIT_E_PAYLOAD_INVALID', `${type}: ${detail}.`, { cause });
  let result: StandardSchemaV1.Result<unknown>;
  try {
    result = await definition.schema['~standard'].validate(payload);
  } catch (error) {
    throw refuse(`its schema threw ${error instanceof Error ? error.message : String(error)}`, error);
  }
  if (!result.issues) return;
  const issues = result.issues.slice(0, 5).map((issue) => {
    const path = issue.path?.map((part) => String(typeof part === 'object' ? part.key : part)).join('.');
    return path ? `${path}: ${issue.message}` : issue.message;
  });
  throw refuse(issues.join('; '));
}
