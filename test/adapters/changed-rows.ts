import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { createInbox, createOutbox, type OutboxDatabase } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { orderCreated } from '../support/orders.ts';

/** A client that renames the columns of rows, or changes the shape of results. */
export function testChangedRows<Tx>(
  name: string,
  connect: (url: string) => { db: OutboxDatabase<Tx>; close(): Promise<unknown> },
): void {
  test(`${name}: inbox and outbox work with rows that the client changes`, async () => {
    const database = await createTestDatabase();
    const { db, close } = connect(database.url);
    onTestFinished(async () => {
      await close();
      await database.close();
    });
    const inbox = createInbox({ db });
    const event = { consumer: 'billing', eventId: randomUUID() };
    const process = () => inbox.transaction(event, () => 'processed');
    expect(await process()).toEqual({ duplicate: false, result: 'processed' });
    expect(await process()).toEqual({ duplicate: true });
    expect(await inbox.prune({ olderThanMs: 0 })).toBe(1);

    const outbox = createOutbox({ db, notify: false });
    const [kept = '', repeated] = [randomUUID(), { ...orderCreated('2'), id: randomUUID() }];
    await outbox.transaction(async (tx, emit) => {
      await emit({ ...orderCreated('1'), id: kept });
      await outbox.emit(tx, orderCreated('1'));
      expect(await outbox.emitOnce(tx, repeated)).toEqual({ id: repeated.id, written: true });
      expect(await outbox.emitOnce(tx, repeated)).toEqual({ id: repeated.id, written: false });
    });
    expect((await outbox.admin.find(kept))?.id).toBe(kept);
    expect((await outbox.admin.counts()).pending).toBe(3);
  });
}

/** The same row with names that SQL does not know. */
export function renamed(row: object): object {
  return Object.fromEntries(Object.entries(row).map(([column, value]) => [`The${column.toUpperCase()}`, value]));
}
