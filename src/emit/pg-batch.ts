/// <reference path="./pg-utils.d.ts" />
import { prepareValue } from 'pg/lib/utils.js';
import type { Statement } from '../database/executor.ts';
import type { PgClient, PgConnection } from './pg-client.ts';
import { insideOf } from './pg-client.ts';

/** The command tag of the last statement, or what failed and at which one: those after it were not carried out. */
export type Answer = { command: string } | { error: unknown; failedAt: number };

/** Whether the client is one of `pg` itself, rather than a wrapper of another kind or the native one. */
export function takesBatches(client: PgClient): boolean {
  const { connection } = insideOf(client);
  return [connection?.parse, connection?.bind, connection?.execute, connection?.sync].every(
    (method) => typeof method === 'function',
  );
}

/**
 * Sends statements under one Sync, and answers once all are carried out or one has failed. Throws, with nothing sent, if
 * a value cannot be written.
 *
 * Statements that are only pipelined are answered one by one, and each answer costs the server a write and this process
 * a wake-up: on loopback more than the round trip that was saved (a no-op sent with COMMIT added 20 % to a transaction
 * when pipelined, 12 % this way). And PostgreSQL skips what comes after a statement that failed, so COMMIT is never
 * carried out without what was to be committed.
 */
export async function sendBatch(client: PgClient, statements: readonly Statement[]): Promise<Answer> {
  const written = statements.map(({ text, values }) => ({
    text,
    values: (values ?? []).map((value) => prepareValue(value)),
  }));
  return new Promise((resolve) => {
    // pg submits whatever has a submit method, as cursors do.
    void client.query(new PgBatch(written, resolve) as unknown as string);
  });
}

/** The same, each statement sent when the one before is answered: for clients that know no batches. */
export async function sendInTurn(client: PgClient, statements: readonly Statement[]): Promise<Answer> {
  let command = '';
  for (const [at, { text, values }] of statements.entries()) {
    try {
      ({ command } = await (values === undefined ? client.query(text) : client.query(text, values)));
    } catch (error) {
      return { error, failedAt: at };
    }
  }
  return { command };
}

class PgBatch {
  /** By this name pg finds it, to wrap it for its query_timeout. */
  callback: (error: unknown) => void;
  readonly #statements: { text: string; values: unknown[] }[];
  #answered = 0;
  #command = '';

  constructor(statements: { text: string; values: unknown[] }[], answer: (answer: Answer) => void) {
    this.#statements = statements;
    this.callback = (error) => answer(error ? { error, failedAt: this.#answered } : { command: this.#command });
  }

  submit(connection: PgConnection): null {
    connection.stream?.cork?.();
    for (const { text, values } of this.#statements) {
      connection.parse({ text });
      connection.bind({ values });
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
  // The server refuses whatever follows COPY FROM STDIN instead of its data.
  handleCopyInResponse(): void {}
}
