import type pg from 'pg';
import type { Session } from './connect.ts';

/**
 * For the rest of a transaction. Names resolve in pg_catalog only, whoever may create functions and operators in `public`
 * or elsewhere. A statement fails where a row-level security policy would hide rows from it: a hidden row of the log looks
 * like a deleted event, a hidden row of the queue like a delivered one.
 */
export const transactionSettingsSql = 'set local search_path = pg_catalog, pg_temp; set local row_security = off';

const beginSql = `begin isolation level read committed read write; ${transactionSettingsSql}`;

const callOfFunction = /"(?:[^"]|"")+"\.[a-z_]+\((?:\$\d+(?:, )?)*\)/.source;

/** A statement that only calls functions of the outbox. Such a function has these settings itself. */
const callPattern = new RegExp(`^select (\\* from )?${callOfFunction}(, ${callOfFunction})*$`);

type Send = (...query: unknown[]) => Promise<unknown>;

/**
 * Makes every statement of a new connection run under READ COMMITTED and READ WRITE, with a search_path of pg_catalog and
 * without row-level security, whatever the server, database or role has for defaults. Under SERIALIZABLE, claims would
 * abort business transactions, and be aborted by them; rotating and pruning need a snapshot per statement. With `public` in the search_path, a role that may
 * create functions there could have its code run with the relay's rights: a function for bigint[] is preferred to one of
 * pg_catalog for any array.
 *
 * Each statement gets BEGIN and COMMIT around it, sent together with it: two more messages and no round trip, or one after
 * the other where pg has no pipeline (before 8.23). A call of one of the outbox's functions, which is what a relay sends most,
 * needs that only where the isolation is another. Not SET: behind a transaction pooler that would stay in a session that
 * other applications use. Not a startup parameter: PgBouncer refuses `options`.
 */
export function fixStatementSettings(client: pg.Client, { readCommitted, readOnly }: Session): void {
  const isFit = readCommitted && !readOnly;
  const send = client.query.bind(client) as unknown as Send;
  const isPipelined = (client as { pipeline?: boolean }).pipeline === true;
  const sendInTransaction: Send = async (...query) => {
    if (isFit && callPattern.test(textOf(query[0]))) return send(...query);
    if (!isPipelined) return sendInTurn(send, query);
    const [begun, answered, ended] = await Promise.allSettled([send(beginSql), send(...query), send('commit')]);
    if (begun.status === 'rejected') throw begun.reason;
    if (answered.status === 'rejected') throw answered.reason;
    if (ended.status === 'rejected') throw ended.reason;
    return answered.value;
  };
  client.query = sendInTransaction as unknown as typeof client.query;
}

function textOf(query: unknown): string {
  return typeof query === 'string' ? query : String((query as { text?: unknown } | null)?.text);
}

async function sendInTurn(send: Send, query: unknown[]): Promise<unknown> {
  await send(beginSql);
  try {
    return await send(...query);
  } finally {
    await send('commit'); // After an error it rolls back.
  }
}
