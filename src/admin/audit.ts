import type { Executor } from '../database/executor.ts';
import { PostcommitError } from '../errors.ts';
import type { AuditEntry } from '../outbox/operating/list-audit.ts';
import { interruptionPrefix, listAudit } from '../outbox/operating/list-audit.ts';
import { finishOperation, startOperation } from '../outbox/operating/record-operation.ts';
import { fromCursor, toCursor } from './cursor.ts';
import { checkReason } from './destinations.ts';
import { checkLimit } from './filters.ts';
import { checkOptionNames } from './option-names.ts';

/** Who operates, and why. Both are written to the audit table with every operation. */
export interface Operator {
  /** A name, at most 500 characters. Default: the database role. */
  by?: string;
  /** Why, at most 500 characters. Default: none. */
  reason?: string;
}

export interface AuditFilter {
  /** Operations per page, from 1 to 1,000. Default 50. */
  limit?: number;
  /** The `next` of the previous page. */
  after?: string;
}

const errorCharsMax = 2_000;
const idsShown = 20;
const targetCharsMax = 4_000;

/** Writes what an operator does to the audit table: a row before the first change, completed at the end. */
export class AuditTrail {
  readonly #db: Executor;
  readonly #schema: string;
  readonly by: string;
  readonly reason: string;

  constructor(db: Executor, schema: string, operator: Operator = {}) {
    checkOptionNames(operator, 'as', ['by', 'reason']);
    this.#db = db;
    this.#schema = schema;
    this.by = checkReason(operator.by, 'by');
    this.reason = checkReason(operator.reason);
  }

  /**
   * Runs `work` with an executor that writes the row of the operation before the first statement. So an operation that is
   * refused because its arguments are invalid leaves no row. `reason` replaces the operator's.
   */
  async record<T>(
    action: string,
    target: object,
    work: (db: Executor) => Promise<T>,
    { by = this.by, reason = this.reason }: { by?: string | undefined; reason?: string | undefined } = {},
  ): Promise<T> {
    let row: Promise<string> | undefined;
    const start = () => startOperation(this.#db, this.#schema, { by, action, target: targetText(target), reason });
    const db: Executor = {
      query: async (text, values) => {
        row ??= start();
        await row;
        return this.#db.query(text, values);
      },
    };
    // The database may be unreachable at the end: the row then stays without one, and the caller gets what `work` returned or threw.
    const finish = async (outcome: { changed: number | null; error: string | null }) => {
      const id = await row?.catch(() => undefined);
      if (id !== undefined) await finishOperation(this.#db, this.#schema, id, outcome).catch(() => {});
    };
    let result: T;
    try {
      result = await work(db);
    } catch (error) {
      const message = error instanceof PostcommitError ? `${error.code}: ${error.message}` : String(error);
      await finish({ changed: null, error: storable(message.slice(0, errorCharsMax)) });
      throw error;
    }
    await finish({ changed: changedBy(result), error: interruptionOf(result) });
    return result;
  }

  async list(filter: AuditFilter): Promise<{ operations: AuditEntry[]; next?: string }> {
    checkOptionNames(filter, 'audit', ['limit', 'after']);
    const limit = checkLimit(filter.limit);
    const after = fromCursor('audit', filter.after);
    const found = await listAudit(this.#db, this.#schema, { after, limit: limit + 1 });
    const last = found.length > limit ? found[limit - 1] : undefined;
    return { operations: found.slice(0, limit), ...(last && { next: toCursor('audit', last.id) }) };
  }
}

/** What an operation selected, as JSON. Of a long list of ids only the first ones. */
function targetText(target: object): string {
  const { ids, ...rest } = target as { ids?: unknown };
  const shortened =
    Array.isArray(ids) && ids.length > idsShown
      ? { ...rest, ids: ids.slice(0, idsShown), idCount: ids.length }
      : target;
  const text = JSON.stringify(shortened, (_name, value) => (typeof value === 'string' ? storable(value) : value));
  return text.length <= targetCharsMax ? text : '{"truncated": true}';
}

/** The text without what PostgreSQL cannot store. */
function storable(text: string): string {
  return text.toWellFormed().replaceAll('\0', '');
}

/** The row has no column of its own for an operation that its signal stopped: the text in place of an error tells it. */
function interruptionOf(result: unknown): string | null {
  const { interrupted, next } = (result ?? {}) as Record<string, unknown>;
  if (interrupted !== true) return null;
  const how = typeof next === 'string' ? `continue with --after ${next}` : 'the same call continues it';
  return `${interruptionPrefix}${how}`;
}

function changedBy(result: unknown): number | null {
  const { count, events, sent, discarded } = (result ?? {}) as Record<string, unknown>;
  if (typeof count === 'number') return count;
  // The results of `prune` and of `forget`.
  if (typeof events === 'number') return events;
  return typeof sent === 'number' && typeof discarded === 'number' ? sent + discarded : null;
}
