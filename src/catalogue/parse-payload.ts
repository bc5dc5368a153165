import type { StandardSchemaV1 } from '@standard-schema/spec';
import type { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import type { DefinedEvent } from './catalogue.ts';

/** What a schema made of a payload. */
export interface ParsedPayload {
  readonly payload: unknown;
}

/** Makes the error of a payload that its schema refuses. */
type Refuse = (detail: string, cause?: unknown) => PostcommitError;

const issuesMax = 5;

/**
 * Runs the schema of an event type, if it has one. Returns a promise only where the schema does, so that others cost no turn of the
 * event loop. Throws, or rejects with, what `refuse` makes of the issues.
 */
export function parsePayload(
  { schema }: Pick<DefinedEvent, 'schema'>,
  payload: unknown,
  refuse: Refuse,
): ParsedPayload | Promise<ParsedPayload> {
  if (schema === undefined) return { payload };
  const threw = (error: unknown) => refuse(`its schema threw ${thrownText(error)}`, error);
  let result: unknown;
  try {
    result = (schema as StandardSchemaV1)['~standard'].validate(payload);
  } catch (error) {
    throw threw(error);
  }
  if (typeof (result as PromiseLike<unknown> | undefined)?.then !== 'function') return read(result, refuse);
  return Promise.resolve(result).then(
    (settled) => read(settled, refuse),
    (error: unknown) => {
      throw threw(error);
    },
  );
}

function read(result: unknown, refuse: Refuse): ParsedPayload {
  if (typeof result !== 'object' || result === null) throw refuse(`its schema returned ${shown(result)}`);
  const { issues, value } = result as { issues?: readonly StandardSchemaV1.Issue[]; value?: unknown };
  if (!issues) return { payload: value };
  const texts = issues.slice(0, issuesMax).map((issue) => {
    const path = issue.path?.map((part) => String(typeof part === 'object' ? part.key : part)).join('.');
    return path ? `${path}: ${issue.message}` : issue.message;
  });
  throw refuse(texts.join('; '));
}

/** The message of an error, or the value that was thrown instead. */
export function thrownText(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : shown(thrown);
}
