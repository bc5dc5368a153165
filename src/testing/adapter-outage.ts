import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createInbox, type Inbox } from '../inbox/inbox.ts';
import type { AdapterHarness } from './adapter-conformance.ts';
import {
  type AdapterSession,
  assertCode,
  orderEvent,
  rejection,
  waitUntil,
  withAdapterSession,
} from './adapter-session.ts';
import type { ConformanceCheck } from './publisher-conformance.ts';
import { type ServerProxy, startServerProxy } from './server-proxy.ts';

interface OutageSession<Tx> extends AdapterSession<Tx> {
  readonly inbox: Inbox<Tx>;
  /** The client is connected through it. */
  readonly proxy: ServerProxy;
}

const unreachable = 'POSTCOMMIT_E_DATABASE_UNREACHABLE';
/** Of a connection that was lost after the work. Consumers count no attempt for any of them. */
const lostBeforeCommit = [unreachable, 'POSTCOMMIT_E_CLIENT_CLOSED', 'POSTCOMMIT_E_COMMIT_UNKNOWN'];
/** The first one may get a connection that was lost while it was idle. */
const triesDuringOutage = 4;

/** An outage is not the fault of an event: it has a code that says so, whatever error the client makes of it. */
export function outageChecks<Tx>(harness: AdapterHarness<Tx>): ConformanceCheck[] {
  const check = (name: string, work: (session: OutageSession<Tx>) => Promise<void>): ConformanceCheck => ({
    name,
    run: () => withOutageSession(harness, work),
  });
  return [
    check('transactions fail with a code while the server is down', async ({ inbox, outbox, proxy }) => {
      let calls = 0;
      const work = async () => void calls++;
      await inbox.transaction(newEvent(), work);
      await proxy.stop();
      for (let n = 0; n < triesDuringOutage; n++) await assertCode(inbox.transaction(newEvent(), work), unreachable);
      await assertCode(inbox.onceOutside(newEvent(), work), unreachable);
      assert.equal(calls, 1, 'calls of the work');
      await assertCode(
        outbox.transaction((_tx, emit) => emit(orderEvent('1'))),
        unreachable,
      );
      await assertCode(outbox.transaction([{ text: 'select 1' }], orderEvent('1')), unreachable);
      await assertCode(outbox.admin.counts(), unreachable);
      await proxy.start();
      // A pool may still report that it could not connect.
      const isUp = () =>
        inbox.transaction(newEvent(), work).then(
          () => true,
          () => false,
        );
      await waitUntil(isUp, 'the client has connected again');
      assert.equal(calls, 2, 'calls of the work');
    }),
    check('inbox.transaction fails with a code when its connection is lost in a statement', (session) =>
      forEachLoss(session, async (event, lose) => {
        await assertCode(session.inbox.transaction(event, lose), unreachable);
      }),
    ),
    check('inbox.transaction fails with a code when its connection is lost, and the work throws', (session) =>
      forEachLoss(session, async (event, lose) => {
        const failed = session.inbox.transaction(event, async (tx) => {
          await rejection(lose(tx), 'a rejection of the statement');
          throw new Error('changed my mind');
        });
        await assertCode(failed, unreachable);
      }),
    ),
    check('inbox.transaction fails with a code when its connection is lost, and the work goes on', (session) =>
      forEachLoss(session, async (event, lose) => {
        const failed = session.inbox.transaction(event, (tx) => rejection(lose(tx), 'a rejection of the statement'));
        const error = await rejection(failed, 'a rejection: COMMIT cannot be sent');
        const { code = '' } = error as { code?: string };
        assert.ok(lostBeforeCommit.includes(code), `expected ${lostBeforeCommit.join(' or ')}, but: ${error}`);
      }),
    ),
  ];
}

function newEvent() {
  return { consumer: 'conformance', eventId: randomUUID() };
}

/** Calls `work` with a statement that loses the connection of its transaction. Fails if that has processed its event. */
async function forEachLoss<Tx>(
  { client, inbox, proxy }: OutageSession<Tx>,
  work: (event: ReturnType<typeof newEvent>, lose: (tx: Tx) => Promise<unknown>) => Promise<void>,
): Promise<void> {
  const endSession = (tx: Tx) => client.query(tx, 'select pg_terminate_backend(pg_backend_pid())');
  const cut = (tx: Tx) => {
    const answer = client.query(tx, 'select 1');
    proxy.cut();
    return answer;
  };
  for (const lose of [endSession, cut]) {
    const event = newEvent();
    await work(event, lose);
    assert.deepEqual(await inbox.transaction(event, () => 'done'), { duplicate: false, result: 'done' });
  }
}

async function withOutageSession<Tx>(
  harness: AdapterHarness<Tx>,
  work: (session: OutageSession<Tx>) => Promise<void>,
): Promise<void> {
  const { database } = harness;
  const proxy = await startServerProxy(database.connectionString);
  const throughProxy = {
    connectionString: proxy.connectionString,
    query: (text: string, values?: unknown[]) => database.query(text, values),
  };
  const check = (session: AdapterSession<Tx>) =>
    work({ ...session, proxy, inbox: createInbox({ db: session.client.db }) });
  try {
    await withAdapterSession(harness, check, throughProxy);
  } finally {
    await proxy.stop();
  }
}
