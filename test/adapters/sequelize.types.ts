import { DataTypes, Sequelize, type Transaction } from 'sequelize';
import { fromSequelize } from '../../src/adapters/sequelize.ts';
import { createOutbox, type OutboxEvent } from '../../src/index.ts';

declare const event: OutboxEvent;
const sequelize = new Sequelize('postgres://localhost/shop');
const Order = sequelize.define('Order', { id: { type: DataTypes.TEXT, primaryKey: true } });
const outbox = createOutbox({ db: fromSequelize(sequelize) });

void sequelize.transaction((transaction) => outbox.emit(transaction, event));
void sequelize.transaction({ readOnly: false }, (transaction) => outbox.emit(transaction, event));
const inFunction = (transaction: Transaction) => outbox.emit(transaction, event);
void inFunction;
// What the callback gets is the client's own type.
void outbox.transaction(async (transaction) => Order.create({ id: '1' }, { transaction }));

// @ts-expect-error The Sequelize object is no transaction.
void outbox.emit(sequelize, event);
// @ts-expect-error Options with a transaction are none.
void sequelize.transaction((transaction) => outbox.emit({ transaction }, event));
