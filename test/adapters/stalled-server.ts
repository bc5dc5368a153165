import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { createInbox, createOutbox, type OutboxDatabase } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';

/** A server that accepts connections and answers nothing. `connect` opens a client that waits for less than five seconds. */
export function testStalledServer<Tx>(
  name: string,
  connect: (url: string) => { db: OutboxDatabase<Tx>; close(): Promise<unknown> },
): void {
  test(`${name}: an outage is recognised by the time that the client waits for a connection`, async () => {
    const database = await createTestDatabase();
    const { hostname, port } = new URL(database.url);
    const proxy = await startTcpProxy({ host: hostname, port: Number(port) });
    const { db, close } = connect(proxy.url(database.url));
    onTestFinished(async () => {
      proxy.resume();
      await proxy.close();
      await close();
      await database.close();
    });
    const outbox = createOutbox({ db, notify: false });
    const inbox = createInbox({ db });
    const event = () => ({ consumer: 'billing', eventId: randomUUID() });
    await inbox.transaction(event(), () => {});
    proxy.stall();
    proxy.cut();
    // The first one may get the connection that was lost.
    for (let n = 0; n < 2; n++) {
      await expect(inbox.transaction(event(), () => {})).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE',
      });
    }
    await expect(outbox.transaction(async () => {})).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE',
    });
  });
}
