import { arrayText } from '../read-json.ts';

/** Placeholder for the conditions in a statement; as a comment, it leaves the statement valid without any. */
export const conditionsGoHere = '/* conditions */';

/**
 * The conditions of one call, to be inserted into a statement. Only given conditions become part of the text: with `($1 is
 * null or type = $1)` the planner could not use an index once a driver prepares the statement. Texts come from this package;
 * values are bound.
 */
export class Conditions {
  readonly values: string[];
  readonly #texts: string[] = [];

  /** `values` are the parameters of the statement itself, from $1 on. */
  constructor(values: readonly string[] = []) {
    this.values = [...values];
  }

  /** Adds a condition on a value, unless it is undefined. `text` gets the placeholder, of type text. */
  where(value: string | undefined, text: (place: string) => string): this {
    if (value === undefined) return this;
    this.values.push(value);
    this.#texts.push(` and ${text(`$${this.values.length}::text`)}`);
    return this;
  }

  /** Adds a condition that needs no value. */
  always(text: string): this {
    this.#texts.push(` and ${text}`);
    return this;
  }

  into(sql: string): string {
    return sql.replaceAll(conditionsGoHere, () => this.#texts.join(''));
  }
}

/** Conditions on the event itself. Times are ISO 8601. */
export interface EventConditions {
  type?: string | undefined;
  aggregateType?: string | undefined;
  aggregateId?: string | undefined;
  queue?: string | undefined;
  createdFrom?: string | undefined;
  createdBefore?: string | undefined;
}

/**
 * What errors of one cause have in common: the first line, with `#` for each id and number. Only the first 1,000 characters are
 * read: errors may have a thousand lines.
 */
export function errorGroupOf(error: string): string {
  return `left(regexp_replace(split_part(left(${error}, 1000), E'\\n', 1), '[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9]+', '#', 'g'), 300)`;
}

/** Conditions on a dead letter and its event. */
export interface DeadLetterConditions extends Omit<EventConditions, 'createdFrom' | 'createdBefore'> {
  reason?: string | undefined;
  /** A substring of the last error. */
  error?: string | undefined;
  /** Equal to `errorGroupOf` the last error. */
  errorGroup?: string | undefined;
  deadFrom?: string | undefined;
  deadBefore?: string | undefined;
  /** Also discarded ones. */
  includeDiscarded?: boolean | undefined;
}

/** For a statement in which the log is `e`. */
export function whereEvent(conditions: Conditions, event: EventConditions): Conditions {
  return conditions
    .where(event.type, (v) => `e.event_type = ${v}`)
    .where(event.aggregateType, (v) => `e.aggregate_type = ${v}`)
    .where(event.aggregateId, (v) => `e.aggregate_id = ${v}`)
    .where(event.queue, (v) => `coalesce(e.queue, 'default') = ${v}`)
    .where(event.createdFrom, (v) => `e.created_at >= ${v}::timestamptz`)
    .where(event.createdBefore, (v) => `e.created_at < ${v}::timestamptz`);
}

/** For a statement in which the log is `e` and the dead letters are `d`. */
export function whereDeadLetter(conditions: Conditions, letter: DeadLetterConditions): Conditions {
  whereEvent(conditions, letter)
    .where(letter.reason, (v) => `d.reason = ${v}`)
    .where(letter.error, (v) => `strpos(d.error, ${v}) > 0`)
    .where(letter.errorGroup, (v) => `${errorGroupOf('d.error')} = ${v}`)
    .where(letter.deadFrom, (v) => `d.dead_at >= ${v}::timestamptz`)
    .where(letter.deadBefore, (v) => `d.dead_at < ${v}::timestamptz`);
  return letter.includeDiscarded ? conditions : conditions.always('d.discarded_at is null');
}

/** The rows that one statement of a bulk operation may process: lowest seqs first, up to a limit. */
export interface Chunk {
  /** Only higher seqs, so that no event is processed twice in one operation, whatever happens to it meanwhile. */
  after: string;
  limit: number;
}

/**
 * The condition that a seq is in a list given as text. As a subquery, the list is parsed once; otherwise PostgreSQL may parse
 * it for each row.
 */
export function isOneOf(seq: string, list: string): string {
  return `${seq} = any (array(select unnest(${list}::bigint[])))`;
}

/** Which dead letters a bulk operation processes: given ones, or all that match and existed when it began. */
export type DeadLetterSelection = { seqs: readonly string[] } | { letters: DeadLetterConditions; diedUntil: string };

/** For a statement in which the log is `e` and the dead letters are `d`, with the chunk's limit as $1. */
export function whereSelected(selection: DeadLetterSelection, chunk: Chunk): Conditions {
  const conditions = new Conditions([String(chunk.limit)]).where(chunk.after, (v) => `d.seq > ${v}::bigint`);
  if ('seqs' in selection) return conditions.where(arrayText(selection.seqs), (v) => isOneOf('d.seq', v));
  return whereDeadLetter(conditions, selection.letters).where(
    selection.diedUntil,
    (v) => `d.dead_at <= ${v}::timestamptz`,
  );
}
