import { rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { dirname } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { buildPackage, NestProject, type NestVariant } from './nest-project.ts';

const variants: NestVariant[] = [
  { version: 10, format: 'commonjs' },
  { version: 11, format: 'commonjs' },
  { version: 11, format: 'module' },
  { version: 12, format: 'module' },
];

let packageFolder: string;
beforeAll(async () => {
  packageFolder = await buildPackage();
}, 120_000);
afterAll(() => rm(dirname(packageFolder), { recursive: true, force: true }));

describe.each(variants)('an application of Nest $version, compiled to $format', (variant) => {
  const project = new NestProject(variant);
  let database: TestDatabase;

  beforeAll(() => project.make(packageFolder), 120_000);
  beforeEach(async () => {
    database = await createTestDatabase();
    await database.query('create table orders (id text primary key)');
    return () => database.close();
  });

  /** Runs a scenario that must end by itself. */
  async function journalOf(scenario: string, env: Record<string, string> = {}) {
    const { code, signal, journal, stderr } = await project.run(scenario, { DATABASE_URL: database.url, ...env });
    expect({ code, signal, stderr }).toEqual({ code: 0, signal: null, stderr: '' });
    return journal;
  }

  it('emits classes and plain events, and calls every handler with payload and context', async () => {
    const journal = await journalOf('orders');
    const handled = journal.filter(({ what }) => what === 'handled');
    const created = { orderId: 'order-1', total: 12 };
    const noted = handled.filter(({ handler }) => handler === 'OrderMails.note');
    expect(noted.find(({ eventType }) => eventType === 'order.created')).toEqual({
      ...{ what: 'handled', handler: 'OrderMails.note', payload: created, eventType: 'order.created' },
      ...{ tenantId: 'acme', correlationId: 'c-1', causationId: 'c-0', givenKey: 'k-1', source: 'shop' },
      ...{ retryCount: 0, idempotent: true, request: null },
    });
    const rest = handled.map(({ handler, payload, of }) => ({ handler, payload, of }));
    expect(rest).toHaveLength(5);
    expect(rest).toContainEqual({ handler: 'receipt', payload: created });
    expect(rest).toContainEqual({ handler: 'OrderMails.note', payload: { cents: '1200' } });
    expect(rest).toContainEqual({ handler: 'archive', payload: null });
    expect(rest).toContainEqual({ handler: 'ScopedHandler.handle', of: 'order.created' });
    expect(journal).toContainEqual({ what: 'answered', status: 201 });
    expect(journal).toContainEqual({ what: 'counts', pending: 0, delivered: 3 });
    expect(journal).toContainEqual({ what: 'inbox', duplicates: [false, true] });
    // The request that emitted them had a context of its own.
    expect(noted.map(({ request }) => request)).toEqual([null, null]);
    // The relay ran from the start, and stopped before the pool was closed.
    expect(journal[0]).toEqual({ what: 'relay', state: 'running' });
    expect(journal.slice(-3)).toEqual([{ what: 'pool closed' }, { what: 'relay', state: 'idle' }, { what: 'done' }]);
  });

  it('calls handlers of any scope, token and name on what Nest makes, and names those it cannot see', async () => {
    const journal = await journalOf('scopes');
    const called = journal.filter(({ what }) => what === 'called').map(({ what, ...entry }) => entry);
    expect(called).toHaveLength(6);
    expect(called.filter(({ type }) => type === 'transient')).toEqual([
      { type: 'transient', number: 1 },
      { type: 'transient', number: 2 },
    ]);
    expect(called).toContainEqual({ type: 'token', handler: 'one', from: 'one' });
    expect(called).toContainEqual({ type: 'token', handler: 'two', from: 'two' });
    expect(called).toContainEqual({ type: 'factory', of: 'factory' });
    expect(called).toContainEqual({ type: 'symbol', handler: 'SymbolHandler.handle' });
    const [warning, ...more] = journal.filter(({ what }) => what === 'warned');
    expect(more).toEqual([]);
    expect(warning?.factories).toEqual(['HIDDEN']);
    // The process also loads the classes of the other scenarios.
    expect(warning?.handlers).toContain('Hidden.handle');
    expect(warning?.handlers).toContain('OrderMails.note');
    const names = ['TransientHandler.handle', 'Handler.handle', 'FactoryMade.handle', 'SymbolHandler.Symbol(handle)'];
    for (const name of names) expect(warning?.handlers).not.toContain(name);
  });

  it('calls handlers beside decorators that replace the method, or refuses to start', async () => {
    const journal = await journalOf('wrapped');
    const calls = journal.filter(({ what }) => what === 'called').map(({ what, ...call }) => call);
    const callsOf = (kind: string) =>
      calls.flatMap(({ handler, wrappers, ...call }) => (call.kind === kind ? [[handler, ...wrappers].join(' ')] : []));
    const handlers = [
      'bound',
      'inherited outer',
      'inside inner',
      'outside outer inner',
      'scoped outer',
      'symbol outer',
    ];
    expect(callsOf('older').sort()).toEqual(handlers);
    expect(callsOf('metadata').sort()).toEqual(handlers);
    // Standard decorators without Symbol.metadata.
    expect(callsOf('standard')).toEqual(['inside inner']);
    expect(callsOf('lost')).toEqual([]);
    const [replaced] = journal.filter(({ what }) => what === 'replaced');
    expect(replaced).toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
    expect(replaced?.message).toContain('Outside.outside would not be called');
    const [warning, ...more] = journal.filter(({ what }) => what === 'warned');
    expect(more).toEqual([]);
    expect(warning).toMatchObject({ handlers: ['scoped'], providers: ['Scoped'] });
    expect(warning?.message).toContain('Write @OnOutboxEvent() above');
  });

  it('lets handlers in flight finish on SIGTERM, and releases what hangs', async () => {
    const result = await project.run('shutdown', { DATABASE_URL: database.url });
    const { code, signal, stderr, journal } = result;
    expect({ code, signal, stderr }).toEqual({ code: null, signal: 'SIGTERM', stderr: '' });
    const order = journal.map(({ what }) => what);
    expect(order.slice(0, 4)).toEqual(['begun', 'begun', 'begun', 'stopping']);
    expect(order.slice(4, 6)).toEqual(['finished', 'finished']);
    expect(order.slice(6).sort()).toEqual(['pool closed', 'second pool closed']);
    const rows = await database.query(
      'select aggregate_id, status, retry_count from postcommit.outbox_status order by seq',
    );
    expect(rows).toEqual([
      { aggregate_id: 'one', status: 'SENT', retry_count: 0 },
      { aggregate_id: 'two', status: 'SENT', retry_count: 0 },
      { aggregate_id: 'hangs', status: 'PENDING', retry_count: 0 },
    ]);
  });

  it('emits with Prisma alone, and closes with work in flight', async () => {
    const journal = await journalOf('prisma');
    const begun = journal.filter(({ what }) => what === 'begun').map(({ orderId }) => orderId);
    expect(begun).toEqual(['first', 'batched', 'last']);
    expect(journal).toContainEqual({ what: 'refused', code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
    const end = journal.slice(journal.findIndex(({ what }) => what === 'stopping')).map(({ what }) => what);
    expect(end).toEqual(['stopping', 'finished', 'disconnected', 'relay', 'done']);
    const statuses = await database.query('select distinct status from postcommit.outbox_status');
    expect(statuses).toEqual([{ status: 'SENT' }]);
    expect(await database.query('select id from orders order by id')).toEqual(
      ['batched', 'first', 'last', 'made by the handler'].map((id) => ({ id })),
    );
  });

  it('tells Terminus how the relay is', async () => {
    const [up, deadLetters, stopped] = (await journalOf('health')).filter(({ what }) => what === 'health');
    expect(up).toMatchObject({ code: 200, result: 'ok', status: 'up', relay: 'running', deadLetters: 0 });
    expect(deadLetters).toMatchObject({
      code: 503,
      result: 'error',
      status: 'down',
      message: '1 dead letter',
    });
    expect(stopped).toMatchObject({ code: 503, status: 'down', relay: 'idle' });
    expect(stopped?.message).toContain('the relay is idle');
  });

  it('publishes through a ClientProxy, after an outage too, and through a provider', async () => {
    const journal = await journalOf('microservice', { MICROSERVICE_PORT: String(await freePort()) });
    expect(journal).toContainEqual({ what: 'billing is down', failed: 0 });
    expect(journal.filter(({ what }) => what === 'billed')).toEqual([
      { what: 'billed', type: 'order.created', data: { total: 12 }, aggregate: { type: 'order', id: '1' } },
    ]);
    expect(journal.filter(({ what }) => what === 'audited')).toEqual([{ what: 'audited', type: 'order.created' }]);
  });

  it('takes options from useClass and useExisting, global or not', async () => {
    const journal = await journalOf('asyncOptions');
    expect(journal).toContainEqual({ what: 'useClass', reason: 'no_handler', attempt: 1 });
    expect(journal).toContainEqual({ what: 'useExisting', state: 'idle' });
    expect(journal).toContainEqual({ what: 'isGlobal: false', unresolved: true, inRoot: true });
  });

  it('lets tests override the outbox, the relay and the options', async () => {
    const journal = await journalOf('overrides');
    const event = { type: 'order.created', payload: { orderId: '7', total: 1 }, headers: { 'tenant-id': 'acme' } };
    expect(journal).toContainEqual({ what: 'recorded', events: [event] });
    expect(journal).toContainEqual({ what: 'run once', before: 'idle', delivered: 1, sent: ['8'] });
    expect(journal).toContainEqual({ what: 'options', state: 'idle' });
  });

  it('refuses bad input with codes', async () => {
    const journal = await journalOf('badInput');
    const codes = Object.fromEntries(journal.filter(({ code }) => code).map(({ what, code }) => [what, code]));
    expect(codes).toEqual({
      decorator: 'POSTCOMMIT_E_EVENT_CLASS',
      'two handlers with one name': 'POSTCOMMIT_E_DUPLICATE_HANDLER',
      'publisher that is not provided': 'POSTCOMMIT_E_BAD_OPTION',
      'no handlers and no destinations': 'POSTCOMMIT_E_BAD_OPTION',
      'pool without a connection string': 'POSTCOMMIT_E_BAD_OPTION',
      'schedules alone': 'none',
      'options of a request': 'POSTCOMMIT_E_BAD_OPTION',
      'options of a request, from a class': 'POSTCOMMIT_E_BAD_OPTION',
      'event class without a type': 'POSTCOMMIT_E_EVENT_CLASS',
      pool: 'POSTCOMMIT_E_NOT_A_TRANSACTION',
      'two copies': 'POSTCOMMIT_E_TWO_COPIES',
    });
    const messageOf = (name: string) => journal.find(({ what }) => what === name)?.message;
    expect(messageOf('two handlers with one name')).toContain("'Mails.send'");
    expect(messageOf('publisher that is not provided')).toContain('NotProvided');
    expect(messageOf('no handlers and no destinations')).toMatch(/in the providers of a module\?.* runRelay: false/);
    expect(messageOf('pool without a connection string')).toContain('is its environment variable set?');
    expect(messageOf('options of a request')).toContain('a request-scoped provider (TenantPool)');
    expect(messageOf('options of a request, from a class')).toContain('(TenantOptions > TenantPool)');
    expect(messageOf('two copies')).toContain('postcommit-again');
  });
});

it.each(variants.filter(({ format, version }) => version !== 11 || format === 'module'))(
  'compiles against the types of Nest $version',
  (variant) => new NestProject(variant).checkSource(),
  120_000,
);

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
