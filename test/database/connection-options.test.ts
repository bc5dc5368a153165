import { chown, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { ConnectionConfig, ConnectionOptions } from '../../src/database/connection-options.ts';
import { resolveConnection } from '../../src/database/connection-options.ts';
import { openPool } from '../../src/database/pool.ts';
import { ReconnectingClient } from '../../src/database/reconnecting-client.ts';
import { probeSession } from '../../src/database/session-probe.ts';
import type { EmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { migrate } from '../../src/index.ts';
import { silentLogger } from '../../src/telemetry/logging.ts';
import { testCertificate, testCertificateKey } from '../publishers/webhook-certificate.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { until } from '../support/wait.ts';

const url = 'postgres://db.example/shop';
const refusals: [name: string, options: unknown, why: RegExp][] = [
  ['an empty URL', { connectionString: '' }, /connectionString is empty\. Is its environment variable set\?/],
  ['neither of the two', {}, /Give connectionString, or connection/],
  ['a config that is a text', { connection: 'secret' }, /must be an object/],
  ['a list', { connection: ['secret'] }, /must be an object/],
  ['no host', { connection: { database: 'shop', password: 'secret' } }, /needs host and database/],
  ['no database', { connection: { host: 'db', password: 'secret' } }, /needs host and database/],
  ['a misspelt field', { connection: { hots: 'db' } }, /no connection\.hots\. Did you mean host\?/],
  [
    'several hosts',
    { connection: { host: 'a,b', database: 'shop' } },
    /connection\.host .* list several in connection/,
  ],
  ['a port that is a text', { connection: { host: 'a', database: 'b', port: '5432' } }, /connection\.port must be/],
  ['a password that is a number', { connection: { host: 'a', database: 'b', password: 5 } }, /a function that returns/],
  ['a timeout with a unit', { connection: { host: 'a', database: 'b', statement_timeout: '5s' } }, /milliseconds/],
  ['what Postcommit sets', { connection: { host: 'a', database: 'b', application_name: 'x' } }, /Postcommit sets it/],
  ['a URL inside', { connection: { connectionString: 'postgres://a:secret@b/c' } }, /beside connection/],
  ['the host twice', { connectionString: url, connection: { host: 'secret' } }, /take host out of connection/],
  ['the port twice', { connectionString: url, connection: { port: 5432 } }, /take port out of connection/],
  [
    'the password twice',
    { connectionString: 'postgres://app:secret@db/shop', connection: { password: () => 'secret' } },
    /take password out of connection/,
  ],
  ['TLS twice', { connectionString: `${url}?sslmode=disable`, connection: { ssl: true } }, /take ssl out/],
  ['a bad URL', { connectionString: 'mysql://a:secret@b/c', connection: { ssl: true } }, /must be a PostgreSQL URL/],
];

describe('connection options', () => {
  test.each(refusals)('%s: refused, with what to do', (_name, options, why) => {
    let refusal: unknown;
    try {
      resolveConnection(options as ConnectionOptions);
    } catch (error) {
      refusal = error;
    }
    expect(refusal).toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringMatching(why) });
    expect(String(refusal)).not.toContain('secret');
  });

  test('a config is added to each host of a connection string', () => {
    const password = () => 'token';
    const { servers, attributes } = resolveConnection({
      connectionString: 'postgres://app@one:5433,two/shop?target_session_attrs=any',
      connection: { password, ssl: { servername: 'db' }, options: '-c work_mem=1MB' },
    });
    expect(attributes).toBe('any');
    expect(servers.map(({ address }) => address)).toEqual(['one:5433', 'two:5432']);
    for (const { config } of servers) {
      expect(config).toMatchObject({ user: 'app', database: 'shop', password, options: '-c work_mem=1MB' });
      expect(config.ssl).toEqual({ servername: 'db' });
      expect(config.connectionString).toBeUndefined();
    }
  });

  test('a user beside a URL without one', () => {
    const [server] = resolveConnection({ connectionString: url, connection: { user: 'app' } }).servers;
    expect(server?.config).toMatchObject({ host: 'db.example', database: 'shop', user: 'app' });
  });
});

describe('a connection config on a server', () => {
  let server: EmbeddedPostgres;
  let admin: pg.Pool;

  beforeAll(async () => {
    server = await startTestPostgres();
    admin = quietPool(server.connectionString, { max: 1 });
    const { uid, gid } = await stat(server.dataDirectory);
    for (const [name, text] of [
      ['server.crt', testCertificate],
      ['server.key', testCertificateKey],
    ] as const) {
      const file = join(server.dataDirectory, name);
      await writeFile(file, `${text}\n`, { mode: 0o600 });
      await chown(file, uid, gid);
    }
    await admin.query('alter system set ssl = on');
    await admin.query('select pg_reload_conf()');
    await admin.query(`create role app login superuser password 'first'`);
  });
  afterAll(async () => {
    await admin.end();
    await server.stop();
  });

  const configWith = (more: ConnectionConfig): ConnectionConfig => ({
    host: 'localhost',
    port: server.port,
    database: 'postgres',
    user: 'app',
    ...more,
  });
  function clientWith(options: ConnectionOptions, log: string[] = []): ReconnectingClient {
    const warn = (fields: object, message: string) => void log.push(JSON.stringify({ ...fields, message }));
    const client = new ReconnectingClient({
      servers: resolveConnection(options),
      applicationName: 'connection config',
      queryTimeoutMs: 5_000,
      logger: { ...silentLogger, warn, info: warn },
    });
    onTestFinished(() => client.close());
    return client;
  }

  test('a password function is asked for every connection, so a password may change', async () => {
    await admin.query(`alter role app password 'first'`);
    let password = 'first';
    let asked = 0;
    const log: string[] = [];
    const client = clientWith(
      {
        connection: configWith({
          password: async () => {
            asked++;
            return password;
          },
        }),
      },
      log,
    );
    await client.open();
    expect(asked).toBe(1);
    await admin.query(`alter role app password 'second-secret'`);
    const end = `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'connection config'`;
    await admin.query(end);
    await until(() => !client.connected, { what: 'the connection was lost' });
    const waiting = client.query('select current_user as name');
    // The old password is refused, and the client keeps asking.
    await until(() => log.some((line) => line.includes('password authentication failed')), { what: 'it was refused' });
    password = 'second-secret';
    expect((await waiting).rows).toEqual([{ name: 'app' }]);
    expect(asked).toBeGreaterThanOrEqual(3);
    expect(log.join('\n')).not.toMatch(/second-secret|"first"/);
  });

  test('a password function beside a connection string, with a host that is down', async () => {
    await admin.query(`alter role app password 'beside'`);
    const client = clientWith({
      connectionString: `postgres://app@127.0.0.1:1,127.0.0.1:${server.port}/postgres`,
      connection: { password: () => 'beside' },
    });
    await client.open();
    expect((await client.query('select current_user as name')).rows).toEqual([{ name: 'app' }]);
  });

  test('TLS with a certificate authority of one’s own, options and timeouts', async () => {
    await admin.query(`alter role app password 'tls'`);
    const client = clientWith({
      connection: configWith({
        password: 'tls',
        ssl: { ca: testCertificate },
        options: '-c work_mem=7MB',
        statement_timeout: 4_321,
        lock_timeout: 1_234,
      }),
    });
    await client.open();
    const { rows } = await client.query(
      `select current_setting('work_mem') as "workMem", current_setting('statement_timeout') as "statementTimeout",
              current_setting('lock_timeout') as "lockTimeout", ssl from pg_stat_ssl where pid = pg_backend_pid()`,
    );
    expect(rows).toEqual([{ workMem: '7MB', statementTimeout: '4321ms', lockTimeout: '1234ms', ssl: true }]);
    const untrusting = clientWith({ connection: configWith({ password: 'tls', ssl: true }) });
    await expect(untrusting.open()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_REFUSED' });
  });

  test('serves migrate(), a pool and the doctor’s probe as well', async () => {
    await admin.query(`alter role app password 'all'`);
    const options = { connection: configWith({ password: async () => 'all' }) };
    expect((await migrate({ ...options, schema: 'configured' })).applied).not.toEqual([]);
    const pool = await openPool(options, 'test');
    onTestFinished(() => pool.end());
    expect((await pool.query('select current_user as name')).rows).toEqual([{ name: 'app' }]);
    expect(await probeSession(options)).toEqual({ pooled: false, shared: false });
  });

  test('an error of the password function reaches the caller of open()', async () => {
    const failing = clientWith({
      connection: configWith({ password: () => Promise.reject(new Error('the token service is down')) }),
    });
    await expect(failing.open()).rejects.toThrow('the token service is down');
  });
});
