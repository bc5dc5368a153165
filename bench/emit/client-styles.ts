import { insertOrderSql, orderValues } from '../contenders/orders.ts';
import type { BenchClient, OpenClient } from './clients.ts';
import { eventOf, insertBareSql, payloadJson, type Scene, type Style } from './styles.ts';

/** The styles of one client. Its transactions have three statements: an order and two lines. */
export interface ClientStyles {
  client: BenchClient;
  withoutEvent: Style;
  /** The client's own extra INSERT: what its adapter is compared with. */
  extraInsert: Style;
  emit: Style;
  /** Only where the adapter saves round trips with it. */
  outboxTransaction: Style | undefined;
}

export const createLinesSql =
  'create table order_lines (order_id bigint, line integer, article text, primary key (order_id, line))';
const insertLineSql = 'insert into order_lines (order_id, line, article) values ($1, $2, $3)';

export function stylesOf(client: BenchClient): ClientStyles {
  const style = (what: string, emits: boolean, run: Style['run']): Style => ({
    name: `${client.name}, ${what}`,
    emits,
    run,
  });
  const own = (
    what: string,
    emits: boolean,
    more?: (scene: Scene, tx: unknown, order: number) => PromiseLike<unknown>,
  ) =>
    style(what, emits, async (scene, order) => {
      await clientOf(scene).transaction(async (tx) => {
        await business(scene, tx, order);
        await more?.(scene, tx, order);
      });
    });
  return {
    client,
    withoutEvent: own('no event', false),
    extraInsert: own('extra insert', false, (scene, tx, order) =>
      clientOf(scene).query(tx, insertBareSql, [String(order), payloadJson(order, scene)]),
    ),
    emit: own('emit', true, (scene, tx, order) => scene.outbox.emit(tx as never, eventOf(order, scene))),
    outboxTransaction:
      client.name === 'pg'
        ? style('outbox.transaction', true, (scene, order) =>
            scene.outbox.transaction(async (tx, emit) => {
              await business(scene, tx, order);
              await emit(eventOf(order, scene));
            }),
          )
        : undefined,
  };
}

async function business(scene: Scene, tx: unknown, order: number): Promise<void> {
  const client = clientOf(scene);
  // Texts, because some clients send a number as a type that does not fit every column.
  await client.query(tx, insertOrderSql, orderValues(order).map(String));
  for (const line of [1, 2]) await client.query(tx, insertLineSql, [String(order), String(line), `article-${line}`]);
}

function clientOf({ client }: Scene): OpenClient {
  if (!client) throw new Error('This style needs a client.');
  return client;
}

export const listOf = ({ withoutEvent, extraInsert, emit, outboxTransaction }: ClientStyles): Style[] => [
  withoutEvent,
  extraInsert,
  emit,
  ...(outboxTransaction ? [outboxTransaction] : []),
];
