import type pg from 'pg';
import type { SessionSettings } from './connect.ts';

/**
 * Settings for the rest of a transaction. Names resolve in pg_catalog only, whatever roles can create functions and
 * operators in `public` or elsewhere. A statement fails where a row-level security policy would hide rows from it: a hidden
 * row of the log looks like a deleted event, a hidden row of the queue like a delivered one.
 */
export const transactionSettingsSql = 'set local search_path = pg_catalog, pg_temp; set local row_security = off';

const settingNames = ['search_path', 'row_security'] as const;
const setConfigs = (pairs: readonly (readonly [to: string, from: string])[]) =>
  `do $postcommit$ begin\n${pairs
    .map(([to, from]) => `  perform pg_catalog.set_config('${to}', pg_catalog.current_setting('${from}'), true);\n`)
    .join('')}end $postcommit$`;

/** Remembers these settings, and sets them back, in a transaction that goes on with statements of another owner. */
export const rememberSettingsSql = setConfigs(settingNames.map((name) => [`postcommit.${name}`, name]));
export const restoreSettingsSql = setConfigs(settingNames.map((name) => [name, `postcommit.${name}`]));

/** The same as one statement, for clients that send one at a time. */
export const selectTransactionSettingsSql =
  "select pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), pg_catalog.set_config('row_security', 'off', true)";

/** For a transaction that has run no query yet. */
export const readCommittedSql = 'set transaction isolation level read committed';

const beginSql = (lockTimeoutMs: number) =>
  `begin isolation level read committed read write; ${transactionSettingsSql}; set local lock_timeout = ${Math.round(lockTimeoutMs)}`;

const parameter = /\$\d+(?:::[a-z ]+(?:\[\])?)*/.source;
const functionCall = `"(?:[^"]|"")+"\\.[a-z_]+\\((?:${parameter}(?:,\\s+${parameter})*)?\\)`;

/** A statement that only calls functions of the outbox. These functions have the settings in their own definition. */
const callPattern = new RegExp(`^select (?:\\* from )?${functionCall}(?:, ${functionCall})*$`);

export function onlyCallsRoutines(text: string): boolean {
  return callPattern.test(text);
}

type Send = (...query: unknown[]) => Promise<unknown>;

/**
 * Makes every statement of a new connection run under READ COMMITTED and READ WRITE, with a search_path of pg_catalog and
 * without row-level security, whatever the defaults of the server, database or role are. Under SERIALIZABLE, claims would
 * abort business transactions and be aborted by them; rotating and pruning need a snapshot per statement. With `public` in
 * the search_path, a role that can create functions there could run code with the relay's rights: PostgreSQL prefers a
 * function for bigint[] to one of pg_catalog for any array.
 *
 * Each statement is sent together with BEGIN and COMMIT: two more messages, but no round trip. Where pg has no pipeline
 * (before 8.23) they are sent one after the other. A call of one of the outbox's functions, which is most of what a relay
 * sends, needs this only if the default isolation differs. SET is no alternative: behind a transaction pooler it would stay
 * in a session that other applications use. Nor is a startup parameter: PgBouncer refuses `options`.
 *
 * A statement gives up a lock after `lockTimeoutMsMax`, before the client gives up the connection: a statement whose client is gone
 * goes on waiting in its server process, and each repetition would leave another one, up to max_connections.
 */
export function fixStatementSettings(
  client: pg.Client,
  { readCommitted, readOnly, lockTimeoutMs }: SessionSettings,
  lockTimeoutMsMax: number,
): void {
  const begin = beginSql(lockTimeoutMs > 0 ? Math.min(lockTimeoutMs, lockTimeoutMsMax) : lockTimeoutMsMax);
  const isFit = readCommitted && !readOnly;
  const send = client.query.bind(client) as unknown as Send;
  const isPipelined = (client as { pipeline?: boolean }).pipeline === true;
  const sendInTransaction: Send = async (...query) => {
    if (isFit && onlyCallsRoutines(textOf(query[0]))) return send(...query);
    if (!isPipelined) return sendInTurn(send, begin, query);
    const [begun, answered, ended] = await Promise.allSettled([send(begin), send(...query), send('commit')]);
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

async function sendInTurn(send: Send, begin: string, query: unknown[]): Promise<unknown> {
  await send(begin);
  try {
    return await send(...query);
  } finally {
    await send('commit'); // After an error it rolls back.
  }
}
