import { DataSource, type EntityManager } from 'typeorm';
import { fromTypeOrm } from '../../src/adapters/typeorm.ts';
import { createOutbox, type Outbox, type OutboxEvent } from '../../src/index.ts';

declare const event: OutboxEvent;
const dataSource = new DataSource({ type: 'postgres' });
const outbox = createOutbox({ db: fromTypeOrm(dataSource) });

outbox satisfies Outbox<EntityManager>;
void dataSource.transaction((manager) => outbox.emit(manager, event));
void dataSource.transaction('SERIALIZABLE', (manager) => outbox.emit(manager, event));
// What the callback gets is the client's own type.
void outbox.transaction(async (manager) => manager.insert('orders', { id: '1' }));

// @ts-expect-error The DataSource is no transaction.
void outbox.emit(dataSource, event);
// @ts-expect-error A QueryRunner is not; its manager is.
void outbox.emit(dataSource.createQueryRunner(), event);
// @ts-expect-error A repository is no transaction.
void outbox.emit(dataSource.getRepository('orders'), event);
