import type { MikroORM } from '@mikro-orm/postgresql';
import { fromMikroOrm } from '../../src/adapters/mikro-orm.ts';
import { createOutbox, type Outbox, type OutboxEvent } from '../../src/index.ts';
import type { MikroORM as MikroORM7 } from './mikro-orm7/node_modules/@mikro-orm/postgresql/index.js';

declare const event: OutboxEvent;
declare const orm: MikroORM;
declare const orm7: MikroORM7;
const outbox = createOutbox({ db: fromMikroOrm(orm) });
const outbox7 = createOutbox({ db: fromMikroOrm(orm7) });

outbox satisfies Outbox<MikroORM['em']>;
void orm.em.transactional((em) => outbox.emit(em, event));
void orm.em.fork().transactional((em) => outbox.emit(em, event));
void orm7.em.fork().transactional((em) => outbox7.emit(em, event));
// What the callback gets is the client's own type.
void outbox.transaction(async (em) => em.flush());
void outbox7.transaction(async (em) => em.flush());

// @ts-expect-error The MikroORM object is no transaction.
void outbox.emit(orm, event);
// @ts-expect-error A connection is no transaction.
void outbox.emit(orm.em.getConnection(), event);
