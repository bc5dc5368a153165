import type { PgClient } from '../pg/client.ts';

/** What `em.getTransactionContext()` returns in MikroORM 6: a transaction of Knex. */
export interface KnexContext {
  isCompleted(): boolean;
  /** Settles when the transaction has ended. */
  readonly executionPromise: Promise<unknown>;
  readonly client: { acquireConnection(): Promise<PgClient> };
  readonly parentTransaction?: KnexContext;
}

/** The same in MikroORM 7: a transaction of Kysely. */
export interface KyselyContext {
  readonly isCommitted: boolean;
  readonly isRolledBack: boolean;
  executeQuery(query: object): Promise<{ rows: Record<string, unknown>[] }>;
}

export type TransactionContext = KnexContext | KyselyContext;

export function isKnex(context: TransactionContext): context is KnexContext {
  return typeof (context as Partial<KnexContext>).isCompleted === 'function';
}

interface Entry {
  hasEnded: boolean;
  readonly parent: object | undefined;
  /** Statements of the outbox that are not answered yet. */
  readonly inFlight: Set<Promise<unknown>>;
  readonly callbacks: Set<() => void>;
}

/** The arguments of MikroORM's transaction events. `transaction` is the outer one when a nested one starts. */
interface TransactionEvent {
  em: object;
  transaction?: object;
}

/**
 * Follows transactions with MikroORM's events. Kysely notes that a transaction has ended when COMMIT is answered, and that a
 * nested one has ended never: its statements would run on a connection that is in another transaction by then. So a
 * transaction counts as ended before COMMIT or ROLLBACK is sent, and these wait for the statements of the outbox.
 */
export class TransactionLog {
  readonly #entries = new WeakMap<object, Entry>();
  readonly #outer = new WeakMap<object, object | undefined>();

  readonly subscriber = {
    beforeTransactionStart: ({ em, transaction }: TransactionEvent) => {
      this.#outer.set(em, transaction);
    },
    afterTransactionStart: async ({ em, transaction }: TransactionEvent) => {
      if (transaction === undefined) return;
      await requireBegun(transaction);
      this.#open(transaction, this.#outer.get(em));
    },
    beforeTransactionCommit: ({ transaction }: TransactionEvent) => this.#end(transaction),
    beforeTransactionRollback: ({ transaction }: TransactionEvent) => this.#end(transaction),
    afterTransactionCommit: ({ transaction }: TransactionEvent) => {
      const callbacks = transaction && this.#entries.get(transaction)?.callbacks;
      for (const callback of callbacks ?? []) callback();
    },
  };

  has(context: TransactionContext): boolean {
    return this.#entries.has(context);
  }

  hasEnded(context: TransactionContext): boolean {
    if (isKnex(context) ? context.isCompleted() : context.isCommitted || context.isRolledBack) return true;
    for (let entry = this.#entries.get(context); entry; entry = entry.parent && this.#entries.get(entry.parent)) {
      if (entry.hasEnded) return true;
    }
    return false;
  }

  /** Runs a statement that COMMIT and ROLLBACK wait for. */
  async send<T>(context: TransactionContext, statement: () => Promise<T>): Promise<T> {
    const inFlight = this.#entries.get(context)?.inFlight;
    const answer = statement();
    inFlight?.add(answer);
    try {
      return await answer;
    } finally {
      inFlight?.delete(answer);
    }
  }

  /** Calls back when the outermost transaction has committed. */
  afterCommit(context: TransactionContext, callback: () => void): void {
    this.#entries.get(this.#outermost(context))?.callbacks.add(callback);
  }

  #open(context: object, parent: object | undefined): void {
    this.#entries.set(context, { hasEnded: false, parent, inFlight: new Set(), callbacks: new Set() });
  }

  async #end(context: object | undefined): Promise<void> {
    const entry = context && this.#entries.get(context);
    if (!entry) return;
    entry.hasEnded = true;
    await Promise.allSettled(entry.inFlight);
  }

  #outermost(context: object): object {
    const outer = (context as Partial<KnexContext>).parentTransaction ?? this.#entries.get(context)?.parent;
    return outer ? this.#outermost(outer) : context;
  }
}

/** When BEGIN fails, Knex opens a transaction that has ended, and only this promise has the error. MikroORM does not look at it. */
async function requireBegun(context: object): Promise<void> {
  if (isKnex(context as TransactionContext) && (context as KnexContext).isCompleted()) {
    await (context as KnexContext).executionPromise;
  }
}
