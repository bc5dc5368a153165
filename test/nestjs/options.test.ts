import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { resolveModuleOptions } from '../../src/frameworks/nestjs/options.ts';
import { createRelay, fromPg, type OutboxDatabase } from '../../src/index.ts';
import { createMetrics } from '../../src/metrics/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

let database: TestDatabase;
let db: OutboxDatabase<pg.PoolClient>;
beforeAll(async () => {
  database = await createTestDatabase();
  db = fromPg(database.pool);
});
afterAll(() => database.close());

describe('the options of @nestarc/outbox', () => {
  it('have the defaults of that package, once one of them is given', () => {
    const { relay, runRelay } = resolveModuleOptions({ db, polling: {} });
    expect(runRelay).toBe(true);
    expect(relay).toEqual({
      connectionString: database.url,
      pollIntervalMs: 5_000,
      batchSizeMax: 100,
      retry: { delaysMs: [1_000, 2_000, 4_000, 8_000] },
      deliverTimeoutMs: 300_000,
      blockedMaxMs: 300_000,
      noHandler: 'fail',
    });
  });

  it('are mapped to those of the relay, which accepts them', () => {
    const { relay, runRelay } = resolveModuleOptions({
      db,
      polling: { enabled: false, interval: 250, batchSize: 1 },
      retry: { maxRetries: 3, backoff: 'fixed', initialDelay: 50 },
      stuckThreshold: 60_000,
      events: [],
    });
    expect(runRelay).toBe(false);
    expect(relay).toMatchObject({
      pollIntervalMs: 250,
      batchSizeMax: 2,
      retry: { delaysMs: [50, 50] },
      deliverTimeoutMs: 60_000,
      blockedMaxMs: 60_000,
    });
    const handlers = { 'order.created': { ignore: () => {} } };
    createRelay({ ...relay, handlers });
    createRelay({ ...resolveModuleOptions({ db, retry: { maxRetries: 1_000 } }).relay, handlers }); // The delays would overflow.
    expect(resolveModuleOptions({ db, retry: { maxRetries: 0 } }).relay.retry).toEqual({ delaysMs: [] });
  });

  it('give way to what relay says', () => {
    const options = resolveModuleOptions({ db, polling: {}, relay: { noHandler: 'retry', retry: { attemptsMax: 9 } } });
    expect(options.relay).toMatchObject({ noHandler: 'retry', retry: { attemptsMax: 9 }, pollIntervalMs: 5_000 });
  });

  it('leave the relay its own defaults where none of them is given', () => {
    expect(resolveModuleOptions({ db }).relay).toEqual({ connectionString: database.url });
  });
});

describe('the options of the module', () => {
  it('prefer a given connection to that of the client', () => {
    const { relay } = resolveModuleOptions({ db, connectionString: 'postgres://other/db', schema: 'events' });
    expect(relay).toMatchObject({ connectionString: 'postgres://other/db', schema: 'events' });
  });

  it.each([
    ['an unknown name', { runRelays: true }, 'Did you mean runRelay?'],
    ['two databases', { prisma: {} }, 'db or prisma, not both'],
    ['no database', { db: undefined }, 'needs db'],
    ['a class for forRootAsync to find', { db: undefined, prisma: class {} }, 'inject it'],
    ['something else than a PrismaClient', { db: undefined, prisma: {} }, 'takes a PrismaClient'],
    ['a wrong number of retries', { retry: { maxRetries: -1 } }, 'retry.maxRetries'],
    [
      'an unknown name in retry',
      { retry: { attemptsMax: 9 } },
      'The option retry of PostcommitModule has no option attemptsMax.',
    ],
    ['an unknown name in polling', { polling: { intervall: 50 } }, 'Did you mean interval?'],
    ['handlers for the relay', { relay: { handlers: {} } }, 'with @OnOutboxEvent()'],
    [
      'destinations for the relay',
      { relay: { destinations: {} } },
      'destinations is an option of PostcommitModule itself',
    ],
    ['a schema for the relay alone', { relay: { schema: 'events' } }, 'schema is an option of PostcommitModule itself'],
    [
      'another server for the relay',
      { relay: { connectionString: 'postgres://a/b' } },
      'connectionString is an option of',
    ],
    ['an unknown backoff', { retry: { backoff: 'linear' } }, 'retry.backoff'],
  ])('are refused with %s', (_name, options, text) => {
    const resolve = () => resolveModuleOptions({ db, ...options } as never);
    expect(resolve).toThrow(
      expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringContaining(text) }),
    );
  });
});

it('metrics reach the outbox, whatever the module adds', () => {
  const metrics = createMetrics();
  expect(resolveModuleOptions({ db, metrics }).outbox.metrics).toBe(metrics);
});
