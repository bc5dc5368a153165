import pg from 'pg';
import type { Executor } from '../../database/executor.ts';
import type { KyselyContext, TransactionLog } from './transaction-log.ts';

type Kysely = Pick<KyselyContext, 'executeQuery'>;

let queries = 0;

/** Runs statements in the transaction. MikroORM itself would write the values into the text. */
export function kyselyExecutor(context: KyselyContext, log: TransactionLog, hasOwnPool: boolean): Executor {
  return { query: (text, values) => log.send(context, () => send(context, text, values, hasOwnPool)) };
}

/** Runs statements on a connection of MikroORM's pool. */
export function kyselySide(connection: unknown, hasOwnPool: boolean): Executor {
  const kysely = (connection as { getClient(): Kysely }).getClient();
  return { query: (text, values) => send(kysely, text, values, hasOwnPool) };
}

async function send(kysely: Kysely, text: string, values: unknown[] = [], hasOwnPool: boolean) {
  // MikroORM tells `pg` to leave dates as text. Kysely passes `sql` on to `client.query()` of `pg`, which also takes an
  // object, with parsers of its own. Another driver gets the text.
  const sql = hasOwnPool ? { text, types: pg.types } : text;
  // The rest is what CompiledQuery.raw() of Kysely makes.
  const { rows } = await kysely.executeQuery({
    sql,
    parameters: values,
    query: { kind: 'RawNode', sqlFragments: [text], parameters: [] },
    queryId: { queryId: `postcommit-${++queries}` },
  });
  return { rows };
}
