import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { codedDatabaseError } from '../../src/database/database-error.ts';
import { createInbox, createOutbox, fromPg, type Inbox, type Outbox } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { type Deferred, deferred, until, within } from '../support/wait.ts';

const consumer = 'accounts';

describe.each(postgresVersions)('the inbox on PostgreSQL %i', (version) => {
  let db: TestDatabase;
  let pool: pg.Pool;
  let inbox: Inbox<pg.PoolClient>;
  let outbox: Outbox<pg.PoolClient>;

  beforeAll(async () => {
    db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    pool = quietPool(db.url, { max: 30 });
    await db.query('create table effects (event_id text not null, n integer not null default 1)');
    inbox = createInbox({ db: fromPg<pg.PoolClient>(pool) });
    outbox = createOutbox({ db: fromPg<pg.PoolClient>(pool), notify: false });
  });
  beforeEach(async () => {
    await db.query(
      'truncate effects, postcommit.processed_events, postcommit.outbox_events, postcommit.outbox_queue cascade',
    );
  });
  afterAll(async () => {
    await pool.end();
    await db.close();
  });

  async function inTransaction<T>(work: (client: pg.PoolClient) => Promise<T>, begin = 'begin'): Promise<T> {
    const client = await pool.connect();
    let broken: Error | undefined;
    try {
      await client.query(begin);
      const result = await work(client);
      const { command } = await client.query('commit');
      if (command !== 'COMMIT') throw new Error(`COMMIT answered ${command}`);
      return result;
    } catch (error) {
      await client.query('rollback').catch((lost: Error) => {
        broken = lost;
      });
      throw error;
    } finally {
      client.release(broken);
    }
  }

  /** Resolved at the latest when the test has ended: a transaction that waited for it would block the next test. */
  function opened(): Deferred<void> {
    const gate = deferred();
    onTestFinished(() => gate.resolve());
    return gate;
  }

  const effect = (client: pg.PoolClient, eventId: string) =>
    client.query('insert into effects (event_id) values ($1)', [eventId]);
  const process = (client: pg.PoolClient, eventId: string) =>
    inbox.once(client, { consumer, eventId }, async () => {
      await effect(client, eventId);
      return 'done';
    });

  async function found(): Promise<{ effects: number; records: number }> {
    const [row] = await db.query(`select (select count(*)::int from effects) as effects,
                                         (select count(*)::int from postcommit.processed_events) as records`);
    return row;
  }

  /** Waits until so many sessions wait for a lock. */
  const waiting = (count: number) =>
    until(
      async () => {
        const rows = await db.query(
          `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
        );
        return rows.length === count;
      },
      { what: `${count} sessions wait` },
    );

  test('processes an event once per consumer, and says so', async () => {
    const eventId = randomUUID();
    expect(await inTransaction((tx) => process(tx, eventId))).toEqual({ duplicate: false, result: 'done' });
    expect(await inTransaction((tx) => process(tx, eventId.toUpperCase()))).toEqual({ duplicate: true });
    const other = await inTransaction((tx) => inbox.once(tx, { consumer: 'mail', eventId }, () => 7));
    expect(other).toEqual({ duplicate: false, result: 7 });
    expect(await found()).toEqual({ effects: 1, records: 2 });
  });

  test('transaction() opens one: record and work commit together, or neither', async () => {
    const eventId = randomUUID();
    const failed = inbox.transaction({ consumer, eventId }, async (tx) => {
      await effect(tx, eventId);
      throw new Error('out of paper');
    });
    await expect(failed).rejects.toThrow('out of paper');
    expect(await found()).toEqual({ effects: 0, records: 0 });
    const book = () =>
      inbox.transaction({ consumer, eventId }, async (tx) => {
        await effect(tx, eventId);
        return 'done';
      });
    expect(await book()).toEqual({ duplicate: false, result: 'done' });
    expect(await book()).toEqual({ duplicate: true });
    expect(await found()).toEqual({ effects: 1, records: 1 });
  });

  test('transaction() tells a lost connection from an error of the work', async () => {
    const key = { consumer, eventId: randomUUID() };
    const refused = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
    await expect(inbox.transaction(key, () => Promise.reject(refused))).rejects.toBe(refused);
    const failed = inbox.transaction(key, (tx) => tx.query('select 1 / 0'));
    await expect(failed).rejects.toMatchObject({ code: '22012' });
    const cause = new Error('wrapped');
    const lost = inbox.transaction(key, async (tx) => {
      await tx.query('select pg_terminate_backend(pg_backend_pid())').catch(() => {});
      throw cause;
    });
    await expect(lost).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE', cause });
  });

  test('twice in one transaction: the second call skips', async () => {
    const eventId = randomUUID();
    const results = await inTransaction(async (tx) => [await process(tx, eventId), await process(tx, eventId)]);
    expect(results.map(({ duplicate }) => duplicate)).toEqual([false, true]);
    expect(await found()).toEqual({ effects: 1, records: 1 });
  });

  test('20 deliveries at once: one effect, and the others wait for it', async () => {
    const eventId = randomUUID();
    const go = opened();
    let working = 0;
    const deliveries = Array.from({ length: 20 }, () =>
      inTransaction((tx) =>
        inbox.once(tx, { consumer, eventId }, async () => {
          working++;
          await effect(tx, eventId);
          await go.promise;
        }),
      ),
    );
    await waiting(19);
    expect(working).toBe(1);
    go.resolve();
    const results = await Promise.all(deliveries);
    expect(results.filter(({ duplicate }) => !duplicate)).toHaveLength(1);
    expect(await found()).toEqual({ effects: 1, records: 1 });
  });

  test('a delivery that waited does the work if the first one rolls back', async () => {
    const eventId = randomUUID();
    const started = deferred();
    const fail = opened();
    const first = inTransaction((tx) =>
      inbox.once(tx, { consumer, eventId }, async () => {
        await effect(tx, eventId);
        started.resolve();
        await fail.promise;
      }),
    );
    await started.promise;
    const second = inTransaction((tx) => process(tx, eventId));
    await waiting(1);
    fail.reject(new Error('out of paper'));
    await expect(first).rejects.toThrow('out of paper');
    expect(await second).toEqual({ duplicate: false, result: 'done' });
    expect(await found()).toEqual({ effects: 1, records: 1 });
  });

  test('a rollback of the transaction leaves no record', async () => {
    const eventId = randomUUID();
    const failed = inTransaction(async (tx) => {
      await process(tx, eventId);
      throw new Error('later');
    });
    await expect(failed).rejects.toThrow('later');
    expect(await found()).toEqual({ effects: 0, records: 0 });
    expect(await inTransaction((tx) => process(tx, eventId))).toMatchObject({ duplicate: false });
  });

  test('work that throws: a caller that catches the error cannot commit', async () => {
    const eventId = randomUUID();
    const client = await pool.connect();
    try {
      await client.query('begin');
      const failed = inbox.once(client, { consumer, eventId }, async () => {
        await effect(client, eventId);
        throw new Error('half done');
      });
      await expect(failed).rejects.toThrow('half done');
      await expect(effect(client, eventId)).rejects.toMatchObject({ code: '25P02' });
      expect((await client.query('commit')).command).toBe('ROLLBACK');
    } finally {
      client.release();
    }
    expect(await found()).toEqual({ effects: 0, records: 0 });
    // The same where another call in the transaction has nothing to do with it.
    await expect(
      inTransaction(async (tx) => {
        await inbox.once(tx, { consumer, eventId }, () => Promise.reject(new Error('x'))).catch(() => {});
        await process(tx, randomUUID());
      }),
    ).rejects.toMatchObject({ code: 'POSTCOMMIT_E_TRANSACTION_ABORTED' });
    expect(await found()).toEqual({ effects: 0, records: 0 });
  });

  test('a savepoint before it lets the caller continue, with neither the record nor the effect', async () => {
    const [bad, good] = [randomUUID(), randomUUID()];
    await inTransaction(async (tx) => {
      for (const eventId of [bad, good]) {
        await tx.query('savepoint before_event');
        try {
          await inbox.once(tx, { consumer, eventId }, async () => {
            await effect(tx, eventId);
            if (eventId === bad) throw new Error('poison');
          });
          await tx.query('release savepoint before_event');
        } catch {
          await tx.query('rollback to savepoint before_event');
        }
      }
    });
    expect(await db.query('select event_id from effects')).toEqual([{ event_id: good }]);
    expect(await db.query('select event_id from postcommit.processed_events')).toEqual([{ event_id: good }]);
  });

  test('a rollback to a savepoint inside the work keeps the record and what is left of the work', async () => {
    const eventId = randomUUID();
    await inTransaction((tx) =>
      inbox.once(tx, { consumer, eventId }, async () => {
        await effect(tx, eventId);
        await tx.query('savepoint inside');
        await tx.query('select 1 / 0').catch(() => tx.query('rollback to savepoint inside'));
      }),
    );
    expect(await found()).toEqual({ effects: 1, records: 1 });
  });

  test('work that ends the transaction is reported', async () => {
    const ended = inTransaction((tx) =>
      inbox.once(tx, { consumer, eventId: randomUUID() }, () => tx.query('rollback')),
    );
    await expect(ended).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
    expect(await found()).toEqual({ effects: 0, records: 0 });
  });

  test.each(['repeatable read', 'serializable'])('under %s a delivery that waited fails with 40001', async (level) => {
    const begin = `begin isolation level ${level}`;
    const eventId = randomUUID();
    const [started, go] = [deferred(), opened()];
    const first = inTransaction(
      (tx) =>
        inbox.once(tx, { consumer, eventId }, async () => {
          await effect(tx, eventId);
          started.resolve();
          await go.promise;
        }),
      begin,
    );
    await started.promise;
    const second = inTransaction((tx) => process(tx, eventId), begin);
    const refused = expect(second).rejects.toMatchObject({ code: '40001' });
    await waiting(1);
    go.resolve();
    await first;
    await refused;
    expect(await inTransaction((tx) => process(tx, eventId), begin)).toEqual({ duplicate: true });
    expect(await found()).toEqual({ effects: 1, records: 1 });
  });

  test('lock_timeout bounds the wait for another delivery', async () => {
    const eventId = randomUUID();
    const [started, go] = [deferred(), opened()];
    const first = inTransaction((tx) =>
      inbox.once(tx, { consumer, eventId }, () => {
        started.resolve();
        return go.promise;
      }),
    );
    await started.promise;
    const second = inTransaction(async (tx) => {
      await tx.query(`set local lock_timeout = '50ms'`);
      await process(tx, eventId);
    });
    await expect(second).rejects.toMatchObject({ code: 'POSTCOMMIT_E_LOCK_TIMEOUT' });
    go.resolve();
    await first;
    // A server that speaks another language quotes names in its own way.
    const where = 'beim Einfügen von Indextupel (0,5) in Relation »processed_events_pkey«';
    const translated = Object.assign(new Error('storniere Anfrage wegen Zeitüberschreitung'), { code: '55P03', where });
    expect(codedDatabaseError(translated)).toMatchObject({ code: 'POSTCOMMIT_E_LOCK_TIMEOUT' });
  });

  test('a connection that is lost during the work leaves nothing', async () => {
    const eventId = randomUUID();
    const lost = inTransaction((tx) =>
      inbox.once(tx, { consumer, eventId }, async () => {
        const { rows } = await tx.query('select pg_backend_pid() as pid');
        await effect(tx, eventId);
        await db.query('select pg_terminate_backend($1, 10000)', [rows[0].pid]);
        await effect(tx, eventId);
      }),
    );
    await within(expect(lost).rejects.toThrow(), { what: 'it fails' });
    expect(await found()).toEqual({ effects: 0, records: 0 });
    expect(await inTransaction((tx) => process(tx, eventId))).toMatchObject({ duplicate: false });
  });

  test('emit inside: the effect, the record and the event commit together', async () => {
    const [one, two] = [randomUUID(), randomUUID()];
    const emitted = async () =>
      (await db.query('select aggregate_id as id from postcommit.outbox_events order by seq')).map(({ id }) => id);
    const consumeAndEmit = (eventId: string, after?: () => void) =>
      outbox.transaction((tx, emit) =>
        inbox.once(tx, { consumer, eventId }, async () => {
          await effect(tx, eventId);
          await emit({ type: 'account.credited', aggregate: ['account', eventId], payload: {} });
          await outbox.emit(tx, { type: 'account.credited', aggregate: ['account', eventId], payload: {} });
          after?.();
        }),
      );
    expect(await consumeAndEmit(one)).toMatchObject({ duplicate: false });
    expect(await consumeAndEmit(one)).toEqual({ duplicate: true });
    const fail = () => {
      throw new Error('no');
    };
    await expect(consumeAndEmit(two, fail)).rejects.toThrow('no');
    expect(await emitted()).toEqual([one, one]);
    expect(await found()).toEqual({ effects: 1, records: 1 });
  });

  test('it costs one statement, and none before it in outbox.transaction', async () => {
    const sent: string[] = [];
    const spied = <T extends pg.PoolClient>(client: T): T => {
      const query = client.query.bind(client) as (...args: unknown[]) => unknown;
      client.query = ((...args: unknown[]) => {
        const text = typeof args[0] === 'string' ? args[0].trim() : 'a batch';
        sent.push(text.includes('; insert') ? text : text.split(/\s+/, 2).join(' '));
        return query(...args);
      }) as T['query'];
      return client;
    };
    const own = quietPool(db.url, { max: 1 });
    try {
      own.on('connect', spied as never);
      const ownInbox = createInbox({ db: fromPg<pg.PoolClient>(own) });
      const client = await own.connect();
      await client.query('begin');
      sent.length = 0;
      await ownInbox.once(client, { consumer, eventId: randomUUID() }, () => {});
      expect(sent).toEqual(['insert into']);
      await client.query('commit');
      client.release();
      sent.length = 0;
      const ownOutbox = createOutbox({ db: fromPg<pg.PoolClient>(own), notify: false });
      await ownOutbox.transaction((tx) => ownInbox.once(tx, { consumer, eventId: randomUUID() }, () => {}));
      expect(sent).toEqual(['begin; set', 'insert into', 'commit']);
      sent.length = 0;
      const done = await ownInbox.transaction({ consumer, eventId: randomUUID() }, (tx) => tx.query('select 1'));
      expect(done).toMatchObject({ duplicate: false });
      expect(sent).toEqual([
        expect.stringMatching(/^begin .*; insert into "postcommit".processed_events /),
        'select 1',
        'commit',
      ]);
    } finally {
      await own.end();
    }
  });

  test.each(['on', 'off'])('takes any consumer name, standard_conforming_strings: %s', async (setting) => {
    const own = quietPool(db.url, { max: 1, options: `-c standard_conforming_strings=${setting}` });
    const consumers = [`it's`, `a \\' or true; --`, '\\', `''`, 'größe "x" $1'];
    const ownInbox = createInbox({ db: fromPg<pg.PoolClient>(own) });
    const ownOutbox = createOutbox({ db: fromPg<pg.PoolClient>(own), notify: false });
    const inPlainTransaction = async <T>(work: (client: pg.PoolClient) => Promise<T>) => {
      const client = await own.connect();
      await client.query('begin');
      const result = await work(client);
      await client.query('commit');
      client.release();
      return result;
    };
    const ways: Record<string, (name: string, eventId: string) => Promise<unknown>> = {
      transaction: (name, eventId) => ownInbox.transaction({ consumer: name, eventId }, () => 'done'),
      once: (name, eventId) => inPlainTransaction((tx) => ownInbox.once(tx, { consumer: name, eventId }, () => 'done')),
      'once in outbox.transaction': (name, eventId) =>
        ownOutbox.transaction((tx) => ownInbox.once(tx, { consumer: name, eventId }, () => 'done')),
    };
    try {
      for (const [way, deliver] of Object.entries(ways)) {
        for (const name of consumers) {
          const eventId = randomUUID();
          expect([way, await deliver(name, eventId)]).toEqual([way, { duplicate: false, result: 'done' }]);
          expect([way, await deliver(name, eventId)]).toEqual([way, { duplicate: true }]);
          expect(
            await db.query('select consumer_name from postcommit.processed_events where event_id = $1', [eventId]),
          ).toEqual([{ consumer_name: name }]);
        }
      }
    } finally {
      await own.end();
    }
  });

  test('a transaction that has ended meanwhile is refused, also while its end is not answered', async () => {
    const eventId = randomUUID();
    await inTransaction((tx) => process(tx, randomUUID()));
    const ended = outbox.transaction(async (tx) => {
      tx.query('rollback').catch(() => {});
      await process(tx, eventId);
    });
    await expect(ended).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
    expect(await found()).toEqual({ effects: 1, records: 1 });
  });

  test.each([
    ['no count', ({ command, rows }: pg.QueryResult) => ({ command, rows })],
    ['the number of returned rows', ({ rows }: pg.QueryResult) => ({ rows, rowCount: rows.length })],
  ])(
    'a client whose results have %s cannot commit a record without its work, and can repeat the transaction',
    async (_, passOn) => {
      const eventId = randomUUID();
      const own = createInbox({ db: fromPg<pg.PoolClient>(pool) });
      const deliver = (tx: pg.PoolClient) => own.once(tx, { consumer, eventId }, () => effect(tx, eventId));
      const deliverWrapped = () =>
        inTransaction(async (tx) => {
          const query = tx.query.bind(tx) as (...args: unknown[]) => Promise<pg.QueryResult>;
          tx.query = (async (...args: unknown[]) => passOn(await query(...args))) as never;
          try {
            return await deliver(tx).catch((error: unknown) => error);
          } finally {
            tx.query = query as never;
          }
        });
      await expect(deliverWrapped()).rejects.toThrow('COMMIT answered ROLLBACK');
      expect(await found()).toEqual({ effects: 0, records: 0 });
      expect(await deliverWrapped()).toMatchObject({ duplicate: false });
      expect(await deliverWrapped()).toEqual({ duplicate: true });
      expect(await inTransaction(deliver)).toEqual({ duplicate: true });
      expect(await found()).toEqual({ effects: 1, records: 1 });
    },
  );

  test('an adapter that returns the number of rows as rowCount processes every event', async () => {
    const plain = fromPg<pg.PoolClient>(pool);
    const db: typeof plain = {
      ...plain,
      inTransaction: (tx) => ({
        async query(text, values) {
          const { rows } = await plain.inTransaction(tx).query(text, values);
          return { rows, rowCount: rows.length };
        },
      }),
    };
    delete (db as { pipelined?: unknown }).pipelined;
    const own = createInbox({ db });
    for (let n = 0; n < 3; n++) {
      const eventId = randomUUID();
      const deliver = () => inTransaction((tx) => own.once(tx, { consumer, eventId }, () => effect(tx, eventId)));
      expect(await deliver()).toMatchObject({ duplicate: false });
      expect(await deliver()).toEqual({ duplicate: true });
    }
    expect(await found()).toEqual({ effects: 3, records: 3 });
  });

  test.each(['nothing else of it', 'its connection'])(
    'a client that wraps pg and returns only rows, with %s, records the event with the work',
    async (shows) => {
      const only = ({ command, rows }: pg.QueryResult) => ({ command, rows });
      const wrap = (client: pg.PoolClient) => ({
        query: async (text: string, values?: unknown[]) => {
          const result: pg.QueryResult | pg.QueryResult[] = await client.query(text, values);
          return Array.isArray(result) ? result.map(only) : only(result);
        },
        ...(shows === 'its connection' && { connection: {} }),
        release: () => client.release(),
      });
      const wrapped = {
        connect: async () => wrap(await pool.connect()),
        query: (text: string, values?: unknown[]) => pool.query(text, values),
        on: () => wrapped,
      };
      const own = createInbox({ db: fromPg(wrapped as never) }) as Inbox<pg.PoolClient>;
      const eventId = randomUUID();
      const deliver = () =>
        own.transaction({ consumer, eventId }, (tx) =>
          tx.query('insert into effects (event_id) values ($1)', [eventId]),
        );
      expect(await deliver()).toMatchObject({ duplicate: false });
      expect(await deliver()).toEqual({ duplicate: true });
      expect(await db.query('select from effects')).toHaveLength(1);
    },
  );

  describe('onceOutside', () => {
    test('of 20 deliveries at once one does the work, and a failure is repeated', async () => {
      const eventId = randomUUID();
      const go = opened();
      let calls = 0;
      const deliveries = Array.from({ length: 20 }, () =>
        inbox.onceOutside({ consumer, eventId }, async () => {
          calls++;
          await go.promise;
          if (calls === 1) throw new Error('503');
          return calls;
        }),
      );
      await waiting(19);
      expect(calls).toBe(1);
      go.resolve();
      const results = await Promise.allSettled(deliveries);
      expect(results.filter(({ status }) => status === 'rejected')).toHaveLength(1);
      const done = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
      expect(done.filter(({ duplicate }) => !duplicate)).toEqual([{ duplicate: false, result: 2 }]);
      expect(calls).toBe(2);
      expect((await found()).records).toBe(1);
    });

    test('skips where the default isolation is serializable, too', async () => {
      const strict = quietPool(db.url, { options: '-c default_transaction_isolation=serializable' });
      try {
        const strictInbox = createInbox({ db: fromPg<pg.PoolClient>(strict) });
        const eventId = randomUUID();
        const go = opened();
        const first = strictInbox.onceOutside({ consumer, eventId }, () => go.promise);
        const recorded = `select from pg_stat_activity where datname = current_database() and backend_xid is not null`;
        await until(async () => (await db.query(recorded)).length > 0, { what: 'the first one works' });
        const second = strictInbox.onceOutside({ consumer, eventId }, () => {});
        await waiting(1);
        go.resolve();
        expect(await first).toMatchObject({ duplicate: false });
        expect(await second).toEqual({ duplicate: true });
      } finally {
        await strict.end();
      }
    });

    test('aborts the signal after timeoutMs, and records nothing', async () => {
      const eventId = randomUUID();
      const aborted = deferred();
      const overdue = inbox.onceOutside(
        { consumer, eventId },
        ({ signal }) => new Promise(() => signal.addEventListener('abort', () => aborted.resolve())),
        { timeoutMs: 20 },
      );
      await expect(overdue).rejects.toMatchObject({ code: 'POSTCOMMIT_E_WORK_TIMEOUT' });
      await within(aborted.promise, { what: 'the signal is aborted' });
      expect((await found()).records).toBe(0);
    });

    test('passes the error of the work on as it is', async () => {
      const refused = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
      const failed = inbox.onceOutside({ consumer, eventId: randomUUID() }, () => Promise.reject(refused));
      await expect(failed).rejects.toBe(refused);
    });

    test('a connection that is lost during the work fails it, and the event is not recorded', async () => {
      const eventId = randomUUID();
      const lost = inbox.onceOutside({ consumer, eventId }, async () => {
        await db.query(`select pg_terminate_backend(pid, 10000) from pg_stat_activity
                         where datname = current_database() and state = 'idle in transaction'`);
      });
      await within(expect(lost).rejects.toThrow(), { what: 'it fails' });
      expect((await found()).records).toBe(0);
    });
  });

  test('prune removes old records only, in chunks, and stops at a signal', async () => {
    await db.query(`insert into postcommit.processed_events
                    select 'c', gen_random_uuid(), now() - interval '40 days' from generate_series(1, 2500)`);
    const recent = randomUUID();
    await inTransaction((tx) => process(tx, recent));
    const stopped = AbortSignal.abort();
    expect(await inbox.prune({ signal: stopped })).toBe(0);
    expect(await inbox.prune({ olderThanMs: 50 * 86_400_000 })).toBe(0);
    expect(await inbox.prune()).toBe(2_500);
    expect(await db.query('select event_id from postcommit.processed_events')).toEqual([{ event_id: recent }]);
    expect(await inbox.prune({ olderThanMs: 0 })).toBe(1);
  });
});
