import { randomUUID } from 'node:crypto';
import type { Executor } from '../../database/executor.ts';
import { requireRows, singleColumn } from '../../database/single-column.ts';
import { notATransaction } from '../refusal.ts';

/** What clients, their transactions and clients with extensions have beyond their types. */
interface ExtensionsInside {
  _extensions?: {
    /** `$none` stands for operations without a model. */
    getAllQueryCallbacks?(model: '$none', operation: string): readonly unknown[];
    getAllClientExtensions?(): object | undefined;
  };
  /** The client that was extended, without its extensions. */
  _originalClient?: object;
}

type RawMethod = '$queryRawUnsafe' | '$executeRawUnsafe';

/** Whether an extension runs instead of this method, also where that is not known. */
function isIntercepted(handle: object, method: RawMethod): boolean {
  const { _extensions } = handle as ExtensionsInside;
  const queries = _extensions?.getAllQueryCallbacks?.('$none', method);
  if (queries === undefined || typeof _extensions?.getAllClientExtensions !== 'function') return true;
  return queries.length > 0 || method in (_extensions.getAllClientExtensions() ?? {});
}

/** By the handle, so that a transaction is checked once. */
const checks = new WeakMap<object, Promise<void>>();

/**
 * Runs statements in the transaction, also where an extension intercepts them. Extensions for tenants and row-level security run each
 * operation in a transaction of its own, after a set_config: an event would be committed even if `tx` is rolled back. No
 * marker of the statement itself can tell, because the other transaction may have written before. So the first statement is preceded by two
 * that must be in one transaction: two round trips.
 */
export function inOwnTransaction(tx: object, executor: Executor): Executor {
  if (!isIntercepted(tx, '$queryRawUnsafe')) return executor;
  return {
    async query(text, values) {
      // These set something for the transaction alone, and must come before its first query.
      if (!text.startsWith('set ')) await checkOnce(tx, executor);
      return executor.query(text, values);
    },
  };
}

function checkOnce(tx: object, executor: Executor): Promise<void> {
  const known = checks.get(tx);
  if (known) return known;
  const check = requireOneTransaction(executor);
  checks.set(tx, check);
  // A statement that fails says nothing about the next one.
  check.catch(() => checks.delete(tx));
  return check;
}

async function requireOneTransaction(executor: Executor): Promise<void> {
  const scope = randomUUID();
  await executor.query(`select pg_catalog.set_config('postcommit.scope', $1::pg_catalog.text, true) as scope`, [scope]);
  const { rows } = await executor.query(`select pg_catalog.current_setting('postcommit.scope', true) as scope`);
  if (singleColumn(requireRows(rows)[0], 'scope') === scope) return;
  throw notATransaction(
    'An extension of this PrismaClient does not run raw statements in the transaction that they belong to, so an event would be committed without it. Leave raw statements out of the extension, or pass a transaction of the client without it.',
  );
}

/** The client whose raw statements are what they seem: elements of the batch that they are given to. */
export function withoutExtensions<Client extends object>(prisma: Client): Client {
  if (!isIntercepted(prisma, '$executeRawUnsafe')) return prisma;
  return ((prisma as ExtensionsInside)._originalClient as Client | undefined) ?? prisma;
}
