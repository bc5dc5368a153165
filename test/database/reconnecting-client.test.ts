import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { resolveConnection } from '../../src/database/connection-options.ts';
import {
  ReconnectingClient,
  type ReconnectingClientOptions,
  reconnectDelayMs,
} from '../../src/database/reconnecting-client.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { seededRandom } from '../support/random.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';
import { deferred, until, within } from '../support/wait.ts';

interface Line {
  level: string;
  message: string;
  attempt?: number;
  suppressed?: number;
}

describe('ReconnectingClient', () => {
  let database: TestDatabase;
  let proxy: TcpProxy;
  let lines: Line[];
  let lost: number;
  /** Of its own for each test: a session whose client is gone may still sleep on the server. */
  let applicationName: string;
  const clients: ReconnectingClient[] = [];

  beforeAll(async () => {
    database = await createTestDatabase();
  });
  beforeEach(async () => {
    const { hostname, port } = new URL(database.url);
    proxy = await startTcpProxy({ host: hostname, port: Number(port) });
    lines = [];
    lost = 0;
    applicationName = `client ${randomUUID()}`;
  });
  afterEach(async () => {
    await Promise.all(clients.splice(0).map((client) => client.close()));
    await proxy.close();
  });
  afterAll(() => database.close());

  function makeClient(options: Partial<ReconnectingClientOptions> = {}): ReconnectingClient {
    const log = (level: string) => (fields: object, message: string) => void lines.push({ level, message, ...fields });
    const client = new ReconnectingClient({
      servers: resolveConnection({ connectionString: proxy.url(database.url) }),
      applicationName,
      queryTimeoutMs: 5_000,
      logger: { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') },
      onLost: () => lost++,
      ...options,
    });
    clients.push(client);
    return client;
  }

  async function one(client: ReconnectingClient): Promise<unknown> {
    return (await client.query('select 1 as one')).rows[0]?.one;
  }

  test('a statement that waits for a lock fails before the connection is given up, and leaves no other behind', async () => {
    await database.query('create table public.locked ()');
    const lock = await database.pool.connect();
    await lock.query('begin; lock table public.locked');
    const client = makeClient({ queryTimeoutMs: 1_000 });
    for (let n = 0; n < 3; n++) {
      await expect(client.query('select from public.locked')).rejects.toMatchObject({ code: '55P03' });
    }
    expect(client.connections).toBe(1);
    const sessions = 'select count(*)::integer as sessions from pg_stat_activity where application_name = $1';
    expect(await database.query(sessions, [applicationName])).toEqual([{ sessions: 1 }]);
    await lock.query('rollback');
    lock.release();
    await client.query('select from public.locked');
  });

  test('comes back after a cut, and the statement in flight fails rather than run twice', async () => {
    const connected: number[] = [];
    const client = makeClient({ onConnect: async (client) => void connected.push(pidOf(client)) });
    await client.open();
    for (let cut = 1; cut <= 3; cut++) {
      const underWay = client.query('select pg_sleep(60)');
      underWay.catch(() => {});
      await until(() => isActive('pg_sleep'), { what: 'the statement has reached the server' });
      proxy.cut();
      await expect(underWay).rejects.toThrow(/ECONNRESET|terminated/);
      expect(client.connected).toBe(false);
      expect(lost).toBe(cut);
      expect(await one(client)).toBe(1);
      expect(client.connected).toBe(true);
      expect(connected).toHaveLength(cut + 1);
    }
    expect(new Set(connected).size).toBe(4);
  });

  test('gives a connection up that has gone silent', async () => {
    const client = makeClient({ queryTimeoutMs: 300 });
    await client.open();
    proxy.stall();
    await expect(within(one(client), { timeoutMs: 3_000, what: 'it gave up' })).rejects.toThrow(/terminated/);
    expect(lost).toBe(1);
    const next = one(client);
    proxy.resume();
    expect(await next).toBe(1);
  });

  test('gives a connection up that goes silent after it was busy for longer than that', async () => {
    const queryTimeoutMs = 300;
    const client = makeClient({ queryTimeoutMs });
    await client.open();
    const startedAt = performance.now();
    while (performance.now() - startedAt < 2 * queryTimeoutMs) await one(client);
    expect(lost).toBe(0);
    proxy.stall();
    await expect(within(one(client), { timeoutMs: 3_000, what: 'it gave up' })).rejects.toThrow(/terminated/);
    expect(lost).toBe(1);
  });

  test('keeps a connection on which every answer comes in time, however many are awaited', async () => {
    const client = makeClient({ queryTimeoutMs: 500 });
    await client.open();
    await Promise.all(Array.from({ length: 5 }, () => client.query('select pg_sleep(0.2)')));
    expect(lost).toBe(0);
  });

  test('keeps a connection on which one answer takes longer than the limit, as long as bytes arrive', async () => {
    const queryTimeoutMs = 1_000;
    const client = makeClient({ queryTimeoutMs });
    await client.open();
    proxy.throttle(1_000_000);
    const startedAt = performance.now();
    const { rows } = await client.query(`select repeat('x', 4000000) as text`);
    expect(performance.now() - startedAt).toBeGreaterThan(3 * queryTimeoutMs);
    expect(rows[0]?.text).toHaveLength(4_000_000);
    expect(lost).toBe(0);
  });

  test('gives a connection up that goes silent in the middle of an answer, and says so', async () => {
    const queryTimeoutMs = 1_000;
    const client = makeClient({ queryTimeoutMs });
    await client.open();
    proxy.throttle(1_000_000);
    const underWay = client.query(`select repeat('x', 8000000)`);
    underWay.catch(() => {});
    const startedAt = performance.now();
    await until(() => performance.now() - startedAt > 2 * queryTimeoutMs, { what: 'the limit has passed' });
    expect(lost).toBe(0);
    proxy.stall();
    await expect(within(underWay, { timeoutMs: 5_000, what: 'it gave up' })).rejects.toThrow(/terminated.*1000 ms/);
    expect(lost).toBe(1);
  });

  test('keeps an idle connection', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    try {
      const client = makeClient();
      await client.open();
      expect(await one(client)).toBe(1);
      await vi.advanceTimersByTimeAsync(60_000);
      expect(vi.getTimerCount()).toBe(0);
      expect(lost).toBe(0);
      expect(await one(client)).toBe(1);
    } finally {
      vi.useRealTimers();
    }
  });

  test('gives a connection up that goes silent while it is being prepared', async () => {
    let prepared = 0;
    const client = makeClient({
      queryTimeoutMs: 300,
      onConnect: async (client) => {
        if (prepared++ === 1) proxy.stall();
        await client.query('listen nothing');
      },
    });
    await client.open();
    proxy.cut();
    await until(() => !client.connected, { what: 'the cut was noticed' });
    const waiting = one(client);
    await until(() => prepared === 2, { what: 'a new connection is being prepared' });
    await until(() => lines.some(({ message }) => message.startsWith('database unreachable')), {
      what: 'it was given up',
    });
    proxy.resume();
    expect(await waiting).toBe(1);
    expect(prepared).toBeGreaterThanOrEqual(3);
  });

  test.each(['fast', 'immediate'] as const)('survives a restart of the server: %s', async (mode) => {
    const server = await startTestPostgres();
    try {
      const client = makeClient({ servers: resolveConnection({ connectionString: server.connectionString }) });
      await client.open();
      const restarted = server.restart(mode);
      await until(() => !client.connected, { what: 'the connection was lost' });
      const waiting = one(client);
      await restarted;
      // Sent while there was no server: it waited for the connection, and a failure would be the connection's.
      expect(await until(() => waiting.catch(() => one(client)), { what: 'it came back' })).toBe(1);
    } finally {
      await server.stop();
    }
  });

  test('never gives up, and writes few lines about it', async () => {
    const client = makeClient();
    await client.open();
    proxy.refuse();
    proxy.cut();
    await until(() => !client.connected, { what: 'the cut was noticed' });
    // From here on time is ours: a hundred attempts take minutes.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    try {
      const start = performance.now();
      const waiting = client.query('select 1 as one');
      for (let attempt = 1; attempt <= 100; attempt++) {
        await turnsUntil(() => vi.getTimerCount() === 1); // The pause after the failed attempt, and nothing else.
        await vi.advanceTimersByTimeAsync(5_000);
      }
      const minutes = (performance.now() - start) / 60_000;
      const told = lines.filter(({ message }) => message.startsWith('database unreachable'));
      expect(told.length).toBeGreaterThan(1);
      expect(told.length).toBeLessThanOrEqual(minutes * 6 + 1);
      // What was left out is counted.
      const counted = told.reduce((sum, line) => sum + (line.suppressed ?? 0), 0) + told.length;
      expect(counted).toBe(told.at(-1)?.attempt);
      expect(told.at(-1)?.attempt).toBeGreaterThan(90);
      // The statement of the beginning still waits, and gets its answer.
      proxy.accept();
      await turnsUntil(() => vi.getTimerCount() === 1);
      const advancing = vi.advanceTimersByTimeAsync(5_000);
      expect((await waiting).rows).toEqual([{ one: 1 }]);
      await advancing;
    } finally {
      vi.useRealTimers();
    }
  });

  test('a hundred lost connections write few lines as well', async () => {
    const client = makeClient();
    for (let i = 0; i < 100; i++) {
      await one(client);
      proxy.cut();
      await until(() => !client.connected, { what: 'the cut was noticed' });
    }
    expect(lost).toBe(100);
    expect(lines.length).toBeLessThanOrEqual(10);
  });

  test('open() fails with a code instead of waiting', async () => {
    proxy.refuse();
    await expect(makeClient().open()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' });
    expect(lines).toEqual([]);
  });

  describe('a statement that is sent often', () => {
    const text = 'select $1::integer + 1';
    const isSession = () => true;

    /** Those of the session, by name; pg names none by itself. */
    async function prepared(client: ReconnectingClient): Promise<unknown[]> {
      const { rows } = await client.query('select name, statement from pg_prepared_statements order by statement');
      return rows.map(({ name, statement }) => {
        expect(name).toMatch(/^postcommit_[0-9a-f]{24}$/);
        return statement;
      });
    }

    async function expectAnswers(client: ReconnectingClient, count = 3): Promise<void> {
      for (let n = 1; n <= count; n++) expect((await client.queryArrays(text, [n], true)).rows).toEqual([[n + 1]]);
    }

    test('is kept prepared, by its text, on each new connection', async () => {
      const client = makeClient({ isSession });
      await expectAnswers(client);
      expect((await client.queryArrays('select 7', [], true)).rows).toEqual([[7]]);
      expect(await prepared(client)).toEqual([text, 'select 7']);
      proxy.cut();
      await until(() => !client.connected, { what: 'the cut was noticed' });
      expect(await prepared(client)).toEqual([]);
      await expectAnswers(client);
      expect(await prepared(client)).toEqual([text]);
    });

    test('is not, unless the connection is known to be a session', async () => {
      let known = false;
      const unknown = makeClient();
      const asked = makeClient({ isSession: () => known });
      for (const client of [unknown, asked]) {
        await expectAnswers(client);
        expect(await prepared(client)).toEqual([]);
      }
      known = true;
      await expectAnswers(asked);
      expect(await prepared(asked)).toEqual([text]);
      known = false;
      await asked.queryArrays('select 7', [], true);
      expect(await prepared(asked)).toEqual([text]);
    });

    test('is not, unless its sender says so', async () => {
      const client = makeClient({ isSession });
      for (let n = 0; n < 3; n++) {
        await client.query(text, [n]);
        await client.queryArrays(text, [n]);
        await client.queryArrays(text, [n], false);
      }
      expect(await prepared(client)).toEqual([]);
    });

    test('is answered when the server has forgotten it, and is never prepared again', async () => {
      const client = makeClient({ isSession });
      await expectAnswers(client);
      await client.query('deallocate all');
      await expectAnswers(client);
      expect(await prepared(client)).toEqual([]);
      proxy.cut();
      await until(() => !client.connected, { what: 'the cut was noticed' });
      await expectAnswers(client);
      expect(await prepared(client)).toEqual([]);
      expect(lost).toBe(1);
    });

    test('is answered when several are in flight as the server forgets it', async () => {
      const client = makeClient({ isSession });
      await expectAnswers(client);
      const answers = await Promise.all([
        client.queryArrays(text, [1], true),
        client.query('deallocate all'),
        ...[2, 3, 4].map((n) => client.queryArrays(text, [n], true)),
      ]);
      expect([0, 2, 3, 4].map((n) => answers[n]?.rows)).toEqual([[[2]], [[3]], [[4]], [[5]]]);
    });

    test('is answered when the server has one of that name already', async () => {
      const client = makeClient({ isSession });
      await expectAnswers(client);
      const [{ name }] = (await client.query('select name from pg_prepared_statements')).rows as [{ name: string }];
      const other = makeClient({ isSession });
      await other.query(`prepare ${name} as select 'of another client'`);
      await expectAnswers(other);
    });

    test('is answered when its result has another type since', async () => {
      const client = makeClient({ isSession });
      const call = async () => (await client.queryArrays('select * from public.changing()', [], true)).rows;
      await database.query(`create function changing(out a integer) language plpgsql as 'begin a := 1; end'`);
      for (let n = 0; n < 3; n++) expect(await call()).toEqual([[1]]);
      expect(await prepared(client)).toEqual(['select * from public.changing()']);
      await database.query(`drop function changing();
        create function changing(out a text, out b integer) language plpgsql as 'begin a := ''one''; b := 2; end'`);
      for (let n = 0; n < 3; n++) expect(await call()).toEqual([['one', 2]]);
    });

    test('runs once, also when it fails', async () => {
      const client = makeClient({ isSession });
      await client.query('create temporary sequence runs');
      const counting = `select nextval('runs') / $1::integer`;
      await expect(client.queryArrays(counting, [0], true)).rejects.toMatchObject({ code: '22012' });
      expect((await client.queryArrays(counting, [1], true)).rows).toEqual([['2']]);
      expect(await prepared(client)).toEqual([counting]);
      await client.query('deallocate all');
      expect((await client.queryArrays(counting, [1], true)).rows).toEqual([['3']]);
    });
  });

  test('reads answers in its own way, whatever parsers the application has set', async () => {
    const oids = [16, 20, 23, 25, 701, 2950] as const;
    const before = oids.map((oid) => pg.types.getTypeParser(oid));
    for (const oid of oids) pg.types.setTypeParser(oid, () => 'parsed by the application');
    try {
      const text = `select true, 9007199254740993::bigint, 7, 'seven'::text, 0.5::double precision, gen_random_uuid()`;
      const { rows } = await makeClient().queryArrays(text, []);
      expect(rows).toEqual([[true, '9007199254740993', 7, 'seven', 0.5, expect.stringMatching(/^[\da-f-]{36}$/)]]);
    } finally {
      for (const [index, oid] of oids.entries())
        pg.types.setTypeParser(oid, before[index] as (text: string) => unknown);
    }
  });

  test('gives a connection up whose server takes no writes any more: the address may lead to another', async () => {
    const client = makeClient();
    await client.query('set default_transaction_read_only = on');
    await database.query(
      `create function public.write() returns void language plpgsql as 'begin create table public.refused (); end'`,
    );
    await expect(client.query('select "public".write()')).rejects.toMatchObject({ code: '25006' });
    expect(lost).toBe(1);
    await client.query('create temporary table taken ()');
  });

  describe('close()', () => {
    const soon = { timeoutMs: 2_500, what: 'it is closed' };

    test('while it waits to try again', async () => {
      const client = makeClient();
      await client.open();
      proxy.refuse();
      proxy.cut();
      await until(() => !client.connected, { what: 'the cut was noticed' });
      const waiting = one(client);
      waiting.catch(() => {});
      await until(() => lines.some(({ message }) => message.startsWith('database unreachable')), { what: 'it waits' });
      await within(client.close(), soon);
      await expect(within(waiting, soon)).rejects.toThrow(/terminated/);
      proxy.accept();
      await expect(one(client)).rejects.toThrow(/closed/);
      expect(await sessions()).toBe(0);
    });

    test.each(['reconnecting', 'opening'])('while it is %s into a silence', async (phase) => {
      const client = makeClient({ queryTimeoutMs: 60_000 });
      if (phase === 'reconnecting') {
        await client.open();
        proxy.cut();
        await until(() => !client.connected, { what: 'the cut was noticed' });
      }
      proxy.stall();
      const waiting = phase === 'opening' ? client.open() : one(client);
      waiting.catch(() => {});
      await until(() => proxy.connections === 1, { what: 'it is connecting' });
      await within(client.close(), soon);
      await expect(within(waiting, soon)).rejects.toThrow();
      proxy.resume();
      await until(() => proxy.connections === 0, { what: 'nothing is left open' });
      expect(client.connected).toBe(false);
    });

    test('between connecting and being ready', async () => {
      const preparing = deferred();
      const goOn = deferred();
      const client = makeClient({
        onConnect: async () => {
          preparing.resolve();
          await goOn.promise;
        },
      });
      const opened = client.open();
      opened.catch(() => {});
      await preparing.promise;
      await within(client.close(), soon);
      goOn.resolve();
      await expect(opened).rejects.toThrow(/terminated|closed/);
      expect(client.connected).toBe(false);
      await until(async () => (await sessions()) === 0, { what: 'no session is left' });
    });

    test('with a statement in flight on a connection that has gone silent', async () => {
      const client = makeClient({ queryTimeoutMs: 60_000 });
      await client.open();
      proxy.stall();
      const waiting = one(client);
      waiting.catch(() => {});
      await within(client.close(), soon);
      await expect(within(waiting, soon)).rejects.toThrow(/terminated/);
    });

    test('twice, and before anything', async () => {
      const client = makeClient();
      await client.close();
      await client.close();
      await expect(client.open()).rejects.toThrow(/terminated|closed/);
    });
  });

  async function isActive(text: string): Promise<boolean> {
    const rows = await database.query(
      `select from pg_stat_activity where application_name = $1 and state = 'active' and query like $2`,
      [applicationName, `%${text}%`],
    );
    return rows.length > 0;
  }

  async function sessions(): Promise<number> {
    return (await database.query('select from pg_stat_activity where application_name = $1', [applicationName])).length;
  }
});

describe('reconnectDelayMs', () => {
  test('doubles from 50 ms to 5 s, half of it at random', () => {
    const { seed } = seededRandom();
    const attempts = fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
    const chances = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(attempts, chances, (attempt, chance) => {
        const delay = reconnectDelayMs(attempt, () => chance);
        const ceiling = attempt > 7 ? 5_000 : 50 * 2 ** (attempt - 1);
        expect(delay).toBeGreaterThanOrEqual(ceiling / 2);
        expect(delay).toBeLessThanOrEqual(ceiling); // Equal by rounding only.
      }),
      { seed },
    );
    expect(Array.from({ length: 9 }, (_, i) => reconnectDelayMs(i + 1, () => 0))).toEqual([
      25, 50, 100, 200, 400, 800, 1_600, 2_500, 2_500,
    ]);
  });
});

function pidOf(client: pg.Client): number {
  return (client as unknown as { processID: number }).processID;
}

/** Turns of the event loop, which go on while timers stand still. */
async function turnsUntil(condition: () => boolean): Promise<void> {
  for (let turn = 0; turn < 100_000; turn++) {
    if (condition()) return;
    await new Promise((next) => setImmediate(next));
  }
  throw new Error('it did not happen');
}
