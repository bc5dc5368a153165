import type { Executor } from '../../database/executor.ts';
import type { KyselyContext, TransactionLog } from './transaction-log.ts';

type Kysely = Pick<KyselyContext, 'executeQuery'>;

let queries = 0;

/** Runs statements in the transaction. MikroORM itself would write the values into the text. */
export function kyselyExecutor(context: KyselyContext, log: TransactionLog): Executor {
  return { query: (text, values) => log.send(context, () => send(context, text, values)) };
}

/** Runs statements on a connection of MikroORM's pool. */
export function kyselySide(connection: unknown): Executor {
  const kysely = (connection as { getClient(): Kysely }).getClient();
  return { query: (text, values) => send(kysely, text, values) };
}

async function send(kysely: Kysely, text: string, values: unknown[] = []) {
  // What CompiledQuery.raw() of Kysely makes.
  const query = { kind: 'RawNode', sqlFragments: [text], parameters: [] };
  const queryId = { queryId: `postcommit-${++queries}` };
  const { rows } = await kysely.executeQuery({ sql: text, parameters: values, query, queryId });
  return { rows };
}
