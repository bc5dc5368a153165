import type pg from 'pg';

const defaultsSql = `
select pg_is_in_recovery() or (current_setting('default_transaction_isolation') = 'read committed'
                               and current_setting('default_transaction_read_only') = 'off') as fit`;
const beginSql = 'begin isolation level read committed read write';

type Send = (...query: unknown[]) => Promise<unknown>;

/**
 * Makes every statement of a new connection run under READ COMMITTED and READ WRITE, whatever the server, database or role has
 * for defaults. Under SERIALIZABLE, claims would abort business transactions, and be aborted by them; rotating and
 * pruning need a snapshot per statement.
 *
 * Where the defaults are others, each statement gets BEGIN and COMMIT around it, sent together with it: two more messages and
 * no round trip, or one after the other where pg has no pipeline (before 8.23). Not SET: behind a transaction pooler that would stay in a session that other applications use. Not a
 * startup parameter: PgBouncer refuses `options`. A standby refuses READ WRITE, and is
 * left alone: each statement that writes says there that it cannot.
 */
export async function keepReadCommitted(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ fit: boolean }>(defaultsSql);
  if (rows[0]?.fit) return;
  const send = client.query.bind(client) as unknown as Send;
  const isPipelined = (client as { pipeline?: boolean }).pipeline === true;
  const sendInTransaction: Send = async (...query) => {
    if (!isPipelined) return sendInTurn(send, query);
    const [begun, answered, ended] = await Promise.allSettled([send(beginSql), send(...query), send('commit')]);
    if (begun.status === 'rejected') throw begun.reason;
    if (answered.status === 'rejected') throw answered.reason;
    if (ended.status === 'rejected') throw ended.reason;
    return answered.value;
  };
  client.query = sendInTransaction as unknown as typeof client.query;
}

async function sendInTurn(send: Send, query: unknown[]): Promise<unknown> {
  await send(beginSql);
  try {
    return await send(...query);
  } finally {
    await send('commit'); // After an error it rolls back.
  }
}
