import type { Executor } from '../database/executor.ts';
import { requireRows } from '../database/single-column.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { PostcommitError } from '../errors.ts';
import { unknownOption } from '../suggest.ts';
import type { PrismaBatchStatement } from './prisma/batch-statement.ts';
import { batchStatement } from './prisma/batch-statement.ts';
import { knownConnection } from './prisma/connection.ts';
import { codedPrismaError, driverErrorOf } from './prisma/errors.ts';
import { inOwnTransaction, withoutExtensions } from './prisma/extensions.ts';
import { notATransaction, wrongClient } from './refusal.ts';
import { requireVersion } from './require-version.ts';
import { withDriverErrors } from './transaction-errors.ts';

export type { PrismaBatchStatement } from './prisma/batch-statement.ts';
export { connectionOf } from './prisma/connection.ts';

/** The part that is used of what `prisma.$transaction(async (tx) => …)` passes to its callback. */
export interface PrismaTransaction extends PrismaRunner {
  /** Only the PrismaClient itself has it: so that it is no transaction for TypeScript either. */
  $connect?: never;
}

/** The part of a `PrismaClient` that is used, also of one with extensions. */
export interface PrismaRoot extends PrismaRunner {
  // biome-ignore lint/suspicious/noExplicitAny: overloaded; see PrismaTransactionOf.
  $transaction(...args: any[]): Promise<any>;
  $connect(): Promise<void>;
}

interface PrismaRunner {
  // biome-ignore lint/suspicious/noExplicitAny: Prisma's own type of the values.
  $queryRawUnsafe<T = unknown>(text: string, ...values: any[]): PromiseLike<T>;
  // biome-ignore lint/suspicious/noExplicitAny: see above.
  $executeRawUnsafe(text: string, ...values: any[]): PromiseLike<number>;
}

/** What `prisma.$transaction()` passes to its callback. */
export type PrismaTransactionOf<Root extends PrismaRoot> = Root['$transaction'] extends (
  // biome-ignore lint/suspicious/noExplicitAny: only the first parameter matters.
  work: (tx: infer Tx) => any,
  // biome-ignore lint/suspicious/noExplicitAny: see above.
  ...rest: any[]
  // biome-ignore lint/suspicious/noExplicitAny: see above.
) => any
  ? Tx & PrismaTransaction
  : PrismaTransaction;

export interface PrismaOptions {
  /**
   * How long `outbox.transaction` and `outbox.admin` wait for a connection, in milliseconds. Default: that of the
   * PrismaClient, 2,000 unless its `transactionOptions` say otherwise.
   */
  maxWaitMs?: number;
  /**
   * Prisma rolls back a transaction of `outbox.transaction` or `outbox.admin` after this time, in milliseconds. Raise it
   * for work on large backlogs. Default: that of the PrismaClient, 5,000 unless its `transactionOptions` say otherwise.
   */
  timeoutMs?: number;
}

/** What Prisma has beyond its types. */
interface ClientInside {
  _clientVersion?: string;
  _activeProvider?: string;
  /** The same object in a client, in clients that extend it and in their transactions. */
  _engine?: object;
  $connect?: unknown;
  $queryRawUnsafe?: unknown;
  [key: symbol]: unknown;
}

/**
 * Emits in interactive transactions of Prisma 6 and 7, and with `outbox.statement` in batches.
 *
 * @example
 * import { createOutbox } from 'postcommit';
 * import { fromPrisma } from 'postcommit/prisma';
 *
 * const outbox = createOutbox({ db: fromPrisma(prisma) });
 *
 * await prisma.$transaction(async (tx) => {
 *   const order = await tx.order.create({ data: { id, total } });
 *   await outbox.emit(tx, { type: 'order.created', aggregate: ['order', id], payload: order });
 * });
 *
 * await prisma.$transaction([
 *   prisma.order.update({ where: { id }, data: { total } }),
 *   outbox.statement({ type: 'order.changed', aggregate: ['order', id], payload: { id, total } }),
 * ]);
 */
export function fromPrisma<Root extends PrismaRoot>(
  prisma: Root,
  options: PrismaOptions = {},
): OutboxDatabase<PrismaTransactionOf<Root>, PrismaBatchStatement> {
  const unknown = unknownOption(options, ['maxWaitMs', 'timeoutMs'], 'fromPrisma()');
  if (unknown !== undefined) throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', unknown);
  const { maxWaitMs, timeoutMs } = options;
  requirePrisma(prisma);
  const limits = {
    ...(maxWaitMs !== undefined && { maxWait: maxWaitMs }),
    ...(timeoutMs !== undefined && { timeout: timeoutMs }),
  };
  return {
    side: executor(prisma),
    inTransaction(tx) {
      requireTransaction(prisma, tx);
      return inOwnTransaction(tx, executor(tx));
    },
    transaction: (work) =>
      withDriverErrors(
        (begun) => prisma.$transaction(begun, limits),
        work,
        (error) => driverErrorOf(error) ?? error,
      ),
    // A statement of a transaction that has ended, or that has timed out, fails in Prisma and is not sent.
    isOpen: (tx) => transactionIdOf(tx) !== undefined,
    connection: () => knownConnection(prisma),
    statement: (event) => batchStatement(withoutExtensions(prisma), event),
  };
}

/**
 * Prisma sends statements of a transaction that come together as one batch. When one of them fails, it does not run those
 * after it, and resolves them with `undefined` all the same (up to 7.10 at least). They are sent again: by themselves, or in a
 * smaller batch.
 */
const triesMax = 100;

function executor(handle: PrismaRunner): Executor {
  return {
    async query(text, values = []) {
      try {
        for (let tries = 0; tries < triesMax; tries++) {
          const rows = await handle.$queryRawUnsafe<Record<string, unknown>[] | undefined>(text, ...values);
          if (rows !== undefined) return { rows: requireRows(rows) };
        }
      } catch (error) {
        throw codedPrismaError(error);
      }
      throw notATransaction('Prisma did not run the statement, because others that were sent with it have failed.');
    },
  };
}

function requirePrisma(prisma: PrismaRoot): void {
  const inside = prisma as PrismaRoot as unknown as ClientInside | undefined;
  if (typeof inside?.$connect !== 'function' || typeof inside.$queryRawUnsafe !== 'function') {
    throw wrongClient('fromPrisma() takes a PrismaClient.');
  }
  requireVersion('@prisma/client', inside._clientVersion, '6.0.0');
  const provider = inside._activeProvider;
  if (provider !== undefined && provider !== 'postgresql' && provider !== 'postgres') {
    throw wrongClient(`fromPrisma() needs a client for the provider postgresql, and this one is for ${provider}.`);
  }
}

/** Of a transaction of Prisma 7. */
interface ScopeContext {
  txId?: unknown;
  scopeId?: unknown;
  /** The scopes that are open: that of the outermost transaction first, then those of nested ones. */
  scopeState?: { stack?: readonly unknown[] };
}

function scopeOf(tx: object): ScopeContext | undefined {
  return (tx as ClientInside)[Symbol.for('prisma.client.transaction.scope_context')] as ScopeContext | undefined;
}

/** Prisma 7 keeps it in a context, Prisma 6 directly. `undefined`: not known, so the server has to check. */
function transactionIdOf(tx: object): unknown {
  return scopeOf(tx)?.txId ?? (tx as ClientInside)[Symbol.for('prisma.client.transaction.id')];
}

/** A nested transaction has the id of the outermost one, so Prisma runs its statements after its end, in what goes on. */
function hasEnded(tx: object): boolean {
  const scope = scopeOf(tx);
  return scope?.scopeState?.stack?.includes(scope.scopeId) === false;
}

function requireTransaction(prisma: object, tx: unknown): void {
  const instead = 'Pass the one that prisma.$transaction(async (tx) => …) passes to its callback.';
  const inside = tx as ClientInside | null | undefined;
  if (typeof inside?.$queryRawUnsafe !== 'function') {
    throw notATransaction(`This is not a transaction of Prisma. ${instead}`);
  }
  if (typeof inside.$connect === 'function') {
    throw notATransaction(
      `This is the PrismaClient, which runs each statement in a transaction of its own. ${instead} In a batch, use outbox.statement(event).`,
    );
  }
  if (hasEnded(inside)) throw notATransaction(`This transaction has ended. ${instead}`);
  const [expected, engine] = [(prisma as ClientInside)._engine, inside._engine];
  if (expected !== undefined && engine !== undefined && engine !== expected) {
    throw notATransaction(
      'This transaction belongs to another PrismaClient than the outbox. Create an outbox for that one, with fromPrisma().',
    );
  }
}
