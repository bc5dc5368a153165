import { isConnectionFailure } from '../../database/database-error.ts';
import type { Statement } from '../../database/executor.ts';
import type { PgClient, PgConnection } from './client.ts';
import { insideOf, isDead } from './client.ts';

/** The command tag of the last statement, or what failed. */
export type Answer = { command: string } | FailedAnswer;

interface FailedAnswer {
  error: unknown;
  /** Index of the statement that failed. PostgreSQL did not run the ones after it. */
  failedAt: number;
  /** Whether the last statement may have reached the server. */
  lastSent: boolean;
}

/** The part of pg's `Query` class that a batch uses. pg exposes it as `Client.Query`. */
type PgQueryClass = new (config: {
  text: string;
  values?: unknown[];
  callback?: (error: unknown) => void;
}) => {
  callback: (error: unknown) => void;
  submit(connection: PgConnection): unknown;
};

/** How to send a batch with one copy of pg. */
interface BatchSupport {
  makeBatch(statements: readonly Statement[], answer: (answer: Answer) => void): object;
  /** How this copy of pg encodes a value for the server. */
  prepareValue(value: unknown): unknown;
}

/** By the `Query` class of each copy of pg: an application may have several copies. */
const supportOfCopy = new WeakMap<PgQueryClass, BatchSupport | 'refused'>();

/**
 * Whether the client can send several statements under one Sync. The native client, wrappers that are not pg clients, and
 * a version of pg that has refused a batch cannot.
 */
export function takesBatches(client: PgClient): boolean {
  return supportOf(client) !== undefined;
}

/**
 * Sends statements under one Sync, and resolves once all have run or one has failed. Rejects, with nothing sent, if a value
 * cannot be encoded. `refused` means that this version of pg does not support batches: nothing was sent.
 *
 * With pipelining alone, every statement is answered separately, and each answer costs the server a write and this process
 * a wake-up: on loopback more than the round trip that it saves (a no-op sent with COMMIT added 20 % to a transaction when
 * pipelined, 12 % this way). PostgreSQL also skips everything after a statement that failed, so COMMIT never runs without
 * what it was meant to commit.
 */
export async function sendBatch(client: PgClient, statements: readonly Statement[]): Promise<Answer | 'refused'> {
  const support = supportOf(client);
  if (support === undefined) return 'refused';
  const written = statements.map(({ text, values }) => ({
    text,
    values: (values ?? []).map((value) => support.prepareValue(value)),
  }));
  const answer = await new Promise<Answer>((resolve) => {
    void client.query(support.makeBatch(written, resolve) as unknown as string);
  });
  // Not sent although the connection works: this version of pg does not support batches.
  if ('error' in answer && !answer.lastSent && !isConnectionFailure(answer.error) && !isDead(client)) {
    supportOfCopy.set(queryClassOf(client) as PgQueryClass, 'refused');
    return 'refused';
  }
  return answer;
}

/** The same for clients without batches: sends each statement when the one before is answered. */
export async function sendInTurn(client: PgClient, statements: readonly Statement[]): Promise<Answer> {
  let command = '';
  for (const [at, { text, values }] of statements.entries()) {
    if (isDead(client)) return { error: new Error('Connection terminated'), failedAt: at, lastSent: false };
    try {
      ({ command } = await (values === undefined ? client.query(text) : client.query(text, values)));
    } catch (error) {
      return { error, failedAt: at, lastSent: at === statements.length - 1 };
    }
  }
  return { command };
}

function supportOf(client: PgClient): BatchSupport | undefined {
  const { connection } = insideOf(client);
  const methods = [connection?.parse, connection?.bind, connection?.execute, connection?.sync];
  if (!methods.every((method) => typeof method === 'function')) return undefined;
  const Query = queryClassOf(client);
  if (Query === undefined) return undefined;
  let support = supportOfCopy.get(Query);
  if (support === undefined) {
    const prepareValue = valueWriterOf(Query);
    support = prepareValue === undefined ? 'refused' : { makeBatch: batchMakerOf(Query), prepareValue };
    supportOfCopy.set(Query, support);
  }
  return support === 'refused' ? undefined : support;
}

/** From the client's own copy of pg: from 8.23.1 on, a pipelined client accepts only instances of this class. */
function queryClassOf(client: PgClient): PgQueryClass | undefined {
  const { Query } = client.constructor as { Query?: unknown };
  return typeof Query === 'function' ? (Query as PgQueryClass) : undefined;
}

/** The function that this copy of pg passes to `bind` for values. Not every version exports it. */
function valueWriterOf(Query: PgQueryClass): ((value: unknown) => unknown) | undefined {
  let writer: unknown;
  const ignore = (): void => {};
  const recorder = {
    stream: {},
    parsedStatements: {},
    submittedNamedStatements: {},
    parse: ignore,
    bind: (message: object) => {
      writer = (message as { valueMapper?: unknown }).valueMapper;
    },
    describe: ignore,
    execute: ignore,
    flush: ignore,
    close: ignore,
    sync: ignore,
  };
  try {
    new Query({ text: 'select $1', values: [null] }).submit(recorder);
  } catch {
    return undefined;
  }
  return typeof writer === 'function' ? (writer as (value: unknown) => unknown) : undefined;
}

function batchMakerOf(Query: PgQueryClass): BatchSupport['makeBatch'] {
  class PgBatch extends Query {
    readonly #statements: readonly Statement[];
    #answered = 0;
    #command = '';
    #sent = false;

    constructor(statements: readonly Statement[], answer: (answer: Answer) => void) {
      super({ text: '' });
      this.#statements = statements;
      // pg wraps the property of this name for its query_timeout.
      this.callback = (error) =>
        answer(error ? { error, failedAt: this.#answered, lastSent: this.#sent } : { command: this.#command });
    }

    override submit(connection: PgConnection): null {
      this.#sent = true;
      connection.stream?.cork?.();
      for (const { text, values } of this.#statements) {
        connection.parse({ text });
        connection.bind({ values: values ?? [] });
        connection.execute({});
      }
      connection.sync();
      connection.stream?.uncork?.();
      return null;
    }

    handleCommandComplete({ text }: { text: string }): void {
      this.#answered++;
      this.#command = text;
    }

    handleEmptyQuery(): void {
      this.#answered++;
    }

    handleError(error: unknown): void {
      this.callback(error);
    }

    handleReadyForQuery(): void {
      this.callback(null);
    }

    handleRowDescription(): void {}
    handleDataRow(): void {}
    handlePortalSuspended(): void {}
    handleCopyData(): void {}
    // The server refuses anything but data after COPY FROM STDIN.
    handleCopyInResponse(): void {}
  }
  return (statements, answer) => new PgBatch(statements, answer);
}
