import type { StandardSchemaV1 } from '@standard-schema/spec';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createOutbox, defineEvents, type ErrorCode, fromPg, type Outbox, type OutboxEvent } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { clear, createOrders, insertOrder, nothing, one, orderCreated, written } from '../support/orders.ts';
import { quietPool } from '../support/quiet-pool.ts';

const loneHigh = '\ud83d';
const loneLow = '\udc00';
const payloadBytesMax = 1_000;
const knownId = '018f3b1e-7f57-7000-8000-000000000001';

const cyclic: Record<string, unknown> = {};
cyclic.self = { cyclic };

function nested(depth: number): unknown {
  let value: unknown = 0;
  for (let i = 0; i < depth; i++) value = [value];
  return value;
}

interface Refusal {
  name: string;
  given: unknown;
  code: ErrorCode;
  /** The message names the culprit or the remedy. */
  says: RegExp;
}

/** An event with something wrong. `undefined` values count: they are what a caller in JavaScript may pass. */
const wrong = (more: Record<string, unknown>) => ({ ...orderCreated('1'), ...more });

const refusals: Refusal[] = [
  ...[
    ['in the payload', wrong({ payload: 'a\0b' }), /payload/],
    ['deep in the payload', wrong({ payload: { a: [{ b: 'x\0' }] } }), /payload/],
    ['in a key of the payload', wrong({ payload: { 'a\0': 1 } }), /payload/],
    ['after a backslash', wrong({ payload: 'a\\\0b' }), /payload/],
    ['in a header', wrong({ headers: { tenant: 'a\0' } }), /headers\["tenant"\]/],
    ['in a header’s name', wrong({ headers: { 'a\0': 'x' } }), /header name/],
    ['in the type', wrong({ type: 'order\0created' }), /type/],
    ['in the aggregate’s type', wrong({ aggregate: ['or\0der', '1'] }), /aggregate\[0\]/],
    ['in the aggregate’s id', wrong({ aggregate: ['order', '1\0'] }), /aggregate\[1\]/],
    ['in the key', wrong({ key: '\0' }), /key/],
  ].map(([where, given, says]) => ({ name: `NUL ${where}`, given, says: says as RegExp })),
  ...[
    ['in the payload', wrong({ payload: `a${loneHigh}b` }), /payload/],
    ['at the end of the payload', wrong({ payload: [loneLow] }), /payload/],
    ['in a key of the payload', wrong({ payload: { [loneHigh]: 1 } }), /payload/],
    ['in a header', wrong({ headers: { tenant: loneLow } }), /headers\["tenant"\]/],
    ['in the type', wrong({ type: `order${loneHigh}` }), /type/],
    ['in the aggregate’s id', wrong({ aggregate: ['order', loneLow] }), /aggregate\[1\]/],
  ].map(([where, given, says]) => ({ name: `lone surrogate ${where}`, given, says: says as RegExp })),
].map((refusal) => ({ ...refusal, code: 'POSTCOMMIT_E_TEXT_NOT_STORABLE' as const }));

function add(code: ErrorCode, list: [name: string, given: unknown, says: RegExp][]): void {
  for (const [name, given, says] of list) refusals.push({ name, given, code, says });
}

add('POSTCOMMIT_E_PAYLOAD_TOO_LARGE', [
  ['a payload one byte over the limit', wrong({ payload: 'x'.repeat(payloadBytesMax - 1) }), /1001 bytes.*1000/],
  ['bytes, not characters', wrong({ payload: '€'.repeat(333) }), /1001 bytes.*1000/],
]);
add('POSTCOMMIT_E_PAYLOAD_NOT_JSON', [
  ['a bigint in the payload', wrong({ payload: { total: 1n } }), /BigInt/],
  ['a cyclic payload', wrong({ payload: cyclic }), /circular/i],
  ['no payload', { type: 'order.created', aggregate: ['order', '1'] }, /use null/],
  ['an undefined payload', wrong({ payload: undefined }), /use null/],
  ['a function', wrong({ payload: () => 1 }), /use null/],
  ['a symbol', wrong({ payload: Symbol('x') }), /use null/],
  [
    'toJSON that throws',
    wrong({
      payload: {
        toJSON: () => {
          throw new Error('no JSON today');
        },
      },
    }),
    /no JSON today/,
  ],
  ['nested without end', wrong({ payload: nested(100_000) }), /call stack|depth|nest/i],
]);
add('POSTCOMMIT_E_BAD_ID', [
  ['an id that is not a UUID', wrong({ id: 'order-1' }), /"order-1".|UUID/],
  ['an empty id', wrong({ id: '' }), /UUID/],
  ['an id with something behind it', wrong({ id: `${knownId}\n` }), /UUID/],
  ['an id that is a number', wrong({ id: 5 }), /Got 5/],
  ['an id that is a bigint', wrong({ id: 5n }), /Got 5n/],
  ['an id that is null', wrong({ id: null }), /Got null/],
]);
add('POSTCOMMIT_E_BAD_DELAY', [
  ['a negative delay', wrong({ delayMs: -1 }), /Got -1/],
  ['NaN as delay', wrong({ delayMs: Number.NaN }), /Got NaN/],
  ['an endless delay', wrong({ delayMs: Number.POSITIVE_INFINITY }), /Got Infinity/],
  ['a delay over 366 days', wrong({ delayMs: 366 * 24 * 3_600_000 + 1 }), /366 days/],
  ['a delay as text', wrong({ delayMs: '5' }), /Got "5"/],
  ['an invalid date', wrong({ availableAt: new Date('nonsense') }), /valid Date.*Invalid Date/],
  ['a date as text', wrong({ availableAt: '2030-01-01' }), /valid Date/],
  ['the year 10000', wrong({ availableAt: new Date(253_402_300_800_000) }), /valid Date/],
  ['the year 0', wrong({ availableAt: new Date(-62_135_596_800_001) }), /valid Date/],
  ['the first date there is', wrong({ availableAt: new Date(-8.64e15) }), /valid Date/],
  ['both times', wrong({ availableAt: new Date(), delayMs: 1 }), /not both/],
]);
add('POSTCOMMIT_E_BAD_EVENT', [
  ['a misspelt delay', wrong({ delay: 60_000 }), /no field "delay"\. Did you mean delayMs\? Valid fields: type/],
  ['a field that nothing is near', wrong({ somethingElse: 1 }), /no field "somethingElse"\. Valid fields: type/],
  ['nothing', null, /type, aggregate and payload/],
  ['a text', 'order.created', /type, aggregate and payload/],
  ['a hole in the list', [orderCreated('1'), undefined], /type, aggregate and payload/],
  ['no type', wrong({ type: undefined }), /type must be a string/],
  ['an empty type', wrong({ type: '' }), /type must be a string/],
  ['a type that is a number', wrong({ type: 7 }), /Got 7/],
  ['a type that cannot be shown', wrong({ type: Object.create(null) }), /type must be a string/],
  ['a type too long', wrong({ type: 'x'.repeat(1_001) }), /1 to 1000 bytes/],
  ['no aggregate', wrong({ aggregate: undefined }), /\[type, id\]/],
  ['an aggregate that is a text', wrong({ aggregate: 'order:1' }), /\[type, id\]/],
  ['an aggregate of one part', wrong({ aggregate: ['order'] }), /\[type, id\]/],
  ['an aggregate of three parts', wrong({ aggregate: ['order', '1', '2'] }), /\[type, id\]/],
  ['an aggregate without type', wrong({ aggregate: ['', '1'] }), /aggregate\[0\]/],
  ['an aggregate without id', wrong({ aggregate: ['order', undefined] }), /aggregate\[1\].*undefined/],
  ['an aggregate’s id with a fraction', wrong({ aggregate: ['order', 1.5] }), /aggregate\[1\].*1\.5/],
  ['an aggregate’s id that has lost its last digits', wrong({ aggregate: ['order', 2 ** 53] }), /aggregate\[1\]/],
  ['an aggregate’s id that is an object', wrong({ aggregate: ['order', { id: 1 }] }), /aggregate\[1\]/],
  ['an aggregate’s id too long', wrong({ aggregate: ['order', '€'.repeat(334)] }), /1 to 1000 bytes/],
  ['an empty key', wrong({ key: '' }), /key must be a string/],
  ['a key that is a number', wrong({ key: 5 }), /key must be a string/],
  ['schema version 0', wrong({ schemaVersion: 0 }), /from 1\. Got 0/],
  ['schema version 1.5', wrong({ schemaVersion: 1.5 }), /from 1\. Got 1\.5/],
  ['schema version past 2.1 billion', wrong({ schemaVersion: 2 ** 31 }), /whole number/],
  ['schema version as text', wrong({ schemaVersion: '1' }), /whole number/],
  ['a header that is a number', wrong({ headers: { retries: 3 } }), /headers\["retries"\].*Got 3/],
  ['a header that is undefined', wrong({ headers: { tenant: undefined } }), /headers\["tenant"\]/],
  ['headers as a list', wrong({ headers: ['a'] }), /whose values are strings/],
  ['headers that are null', wrong({ headers: null }), /whose values are strings/],
  [
    'more than 128 headers',
    wrong({ headers: Object.fromEntries(Array.from({ length: 129 }, (_, n) => [`h${n}`, 'x'])) }),
    /129 names.*128/,
  ],
  ['headers too large', wrong({ headers: { a: 'x'.repeat(16_384) } }), /16385 bytes.*16384/],
]);
add('POSTCOMMIT_E_DUPLICATE_ID', [
  [
    'an id twice in one call',
    [wrong({ id: knownId }), wrong({ id: knownId.toUpperCase() })],
    /The id [0-9a-f-]{36} appears twice in this call/,
  ],
]);

/** What a schema library gives: here written by hand, because any will do. */
function schemaOf(validate: StandardSchemaV1['~standard']['validate']): StandardSchemaV1 {
  return { '~standard': { version: 1, vendor: 'test', validate } };
}
const needsId: StandardSchemaV1['~standard']['validate'] = (value) =>
  typeof (value as { id?: unknown }).id === 'string'
    ? { value }
    : { issues: [{ message: 'expected a text', path: ['order', { key: 'id' }] }, { message: 'no order at all' }] };

const asItWas = (payload: unknown) => payload;
const events = defineEvents({
  'order.created': { version: 3, schema: schemaOf(needsId), upcast: { 1: asItWas, 2: asItWas } },
  'order.async': { schema: schemaOf(async (value) => needsId(value)) },
  'order.broken': {
    schema: schemaOf(() => {
      throw new Error('schema library crashed');
    }),
  },
  'order.free': {},
});
const catalogued: Refusal[] = [
  {
    name: 'a type that is not in the catalogue',
    given: wrong({ type: 'order.craeted' }),
    code: 'POSTCOMMIT_E_UNKNOWN_EVENT_TYPE',
    says: /"order\.craeted"\. Did you mean order\.created\? Known types: order\.created, order\.async/,
  },
  {
    name: 'a type every object has',
    given: wrong({ type: 'constructor' }),
    code: 'POSTCOMMIT_E_UNKNOWN_EVENT_TYPE',
    says: /"constructor"/,
  },
  {
    name: 'another version than that of the catalogue',
    given: wrong({ type: 'order.free', schemaVersion: 2 }),
    code: 'POSTCOMMIT_E_BAD_EVENT',
    says: /schemaVersion of order\.free is 1 in the catalogue\. Got 2/,
  },
  {
    name: 'a payload that does not match',
    given: wrong({ payload: {} }),
    code: 'POSTCOMMIT_E_PAYLOAD_INVALID',
    says: /order\.created: order\.id: expected a text; no order at all/,
  },
  {
    name: 'the same, checked asynchronously',
    given: wrong({ type: 'order.async', payload: {} }),
    code: 'POSTCOMMIT_E_PAYLOAD_INVALID',
    says: /expected a text/,
  },
  {
    name: 'a schema that throws',
    given: wrong({ type: 'order.broken' }),
    code: 'POSTCOMMIT_E_PAYLOAD_INVALID',
    says: /order\.broken.*schema library crashed/,
  },
];

describe('refusals', () => {
  let database: TestDatabase;
  let pool: pg.Pool;
  let plain: Outbox<pg.PoolClient>;
  let withCatalogue: Outbox<pg.PoolClient>;

  beforeAll(async () => {
    database = await createTestDatabase();
    await createOrders(database);
    pool = quietPool(database.url);
    plain = createOutbox<pg.PoolClient>({ db: fromPg(pool), payloadBytesMax, notify: false });
    withCatalogue = createOutbox<pg.PoolClient>({ db: fromPg(pool), events, notify: false });
  });
  beforeEach(() => clear(database));
  afterAll(async () => {
    await pool.end();
    await database.close();
  });

  async function inTransaction<T>(work: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
    const tx = await pool.connect();
    try {
      await tx.query('begin');
      const result = await work(tx);
      await tx.query('commit');
      return result;
    } catch (error) {
      await tx.query('rollback');
      throw error;
    } finally {
      tx.release();
    }
  }

  async function expectRefused(outbox: Outbox<pg.PoolClient>, { given, code, says }: Refusal): Promise<void> {
    const event = given as OutboxEvent;
    await inTransaction(async (tx) => {
      const refused = await outbox.emit(tx, event).then(
        () => undefined,
        (error) => error,
      );
      expect(refused).toMatchObject({ name: 'PostcommitError', code });
      expect(refused.message).toMatch(says);
      expect(refused.message.length).toBeLessThan(600);
      // Nothing reached the database: the caller's transaction continues.
      await tx.query(insertOrder, ['1']);
      await outbox.emit(tx, orderCreated('1'));
    });
    expect(await written(database)).toEqual(one);

    await clear(database);
    const failing = outbox.transaction(async (tx, emit) => {
      await tx.query(insertOrder, ['1']);
      await emit(orderCreated('1'));
      await emit(event);
    });
    await expect(failing).rejects.toMatchObject({ name: 'PostcommitError', code });
    expect(await written(database)).toEqual(nothing);
  }

  test.each(refusals)('$code: $name', (refusal) => expectRefused(plain, refusal));
  test.each(catalogued)('$code: $name', (refusal) => expectRefused(withCatalogue, refusal));

  test('one bad event in a list refuses the list', async () => {
    const list = [orderCreated('1'), orderCreated('2'), orderCreated('3', { id: 'bad' })];
    await inTransaction(async (tx) => {
      await expect(plain.emit(tx, list)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_ID' });
    });
    expect(await written(database)).toEqual(nothing);
  });

  test('an id that exists already', async () => {
    await inTransaction((tx) => plain.emit(tx, orderCreated('1', { id: knownId })));
    const again = inTransaction(async (tx) => {
      await tx.query(insertOrder, ['1']);
      const emitted = plain.emit(tx, orderCreated('1', { id: knownId }));
      await expect(emitted).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DUPLICATE_ID' });
      // The database noticed, so this transaction is over.
      await expect(plain.emit(tx, orderCreated('2'))).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_TRANSACTION_ABORTED',
      });
      await tx.query('select 1');
    });
    await expect(again).rejects.toMatchObject({ code: '25P02' });
    expect(await written(database)).toEqual({ orders: 0, events: 1, queued: 1 });
  });

  test('headers that only the database finds too large', async () => {
    const event = orderCreated('1', { headers: { a: '\u0001'.repeat(16_000) } });
    const refused = {
      code: 'POSTCOMMIT_E_BAD_EVENT',
      message: expect.stringContaining('headers of at most 128 names and 65536 bytes'),
    };
    await expect(inTransaction((tx) => plain.emit(tx, event))).rejects.toMatchObject(refused);
    await expect(plain.transaction((_tx, emit) => emit(event))).rejects.toMatchObject(refused);
    expect(await written(database)).toEqual(nothing);
  });

  test('an outbox that was never migrated says which command to run', async () => {
    const missing = createOutbox<pg.PoolClient>({ db: fromPg(pool), schema: 'not_migrated', notify: false });
    const emitted = inTransaction((tx) => missing.emit(tx, orderCreated('1')));
    await expect(emitted).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
    await expect(emitted).rejects.toThrow('npx postcommit migrate');
    const committed = missing.transaction(async (tx, emit) => {
      await tx.query(insertOrder, ['1']);
      await emit(orderCreated('1'));
    });
    await expect(committed).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
    expect(await written(database)).toEqual(nothing);
  });

  test('createOutbox suggests the nearest option for one that it does not know', () => {
    const misspelt = { db: fromPg(pool), shema: 'x' } as never;
    expect(() => createOutbox(misspelt)).toThrow(
      expect.objectContaining({
        code: 'POSTCOMMIT_E_BAD_OPTION',
        message: expect.stringContaining('no option shema. Did you mean schema?'),
      }),
    );
  });

  test('outbox.transaction refuses an option that it does not know', async () => {
    const misspelt = { isolationLevel: 'serializable' } as never;
    const refused = {
      code: 'POSTCOMMIT_E_BAD_OPTION',
      message: expect.stringContaining('Valid options: isolation, pipeline.'),
    };
    const outbox = createOutbox({ db: fromPg(pool) });
    await expect(outbox.transaction(async () => {}, misspelt)).rejects.toMatchObject(refused);
    await expect(outbox.transaction([], orderCreated('1'), misspelt)).rejects.toMatchObject(refused);
  });

  describe('what is not refused', () => {
    const accepted: [string, Partial<OutboxEvent>][] = [
      ['the six characters \\u0000', { payload: '\\u0000' }],
      ['the same in a key, and after more backslashes', { payload: { '\\\\u0000': '\\\\\\ud800 \\u0000' } }],
      ['a payload of exactly the limit', { payload: 'x'.repeat(payloadBytesMax - 2) }],
      [
        'a pair of surrogates',
        { payload: '👩‍👩‍👧', type: '👍', aggregate: ['👍', '👍'], headers: { '👍': '👍' }, key: '👍' },
      ],
      [
        'names of 1,000 bytes that do not compress',
        { type: noise(1_000), aggregate: [noise(1_000), noise(1_000)], key: noise(1_000) },
      ],
      [
        'as many headers as allowed',
        { headers: Object.fromEntries(Array.from({ length: 128 }, (_, n) => [`h${n}`, 'x'])) },
      ],
      ['headers of exactly the limit', { headers: { a: noise(16_383) } }],
      ['no delay, and a date long ago', { availableAt: new Date(-62_135_596_800_000) }],
      ['a delay of 366 days', { delayMs: 366 * 24 * 3_600_000 }],
      ['upper case in an id', { id: knownId.toUpperCase() }],
      ['a header called __proto__', { headers: JSON.parse('{"__proto__": "x", "constructor": "y"}') }],
    ];

    test.each(accepted)('%s', async (_name, more) => {
      const event = orderCreated('1', more);
      const id = await inTransaction((tx) => plain.emit(tx, event));
      const [row] = await database.query(
        `select e.id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload, e.headers::text
           from postcommit.outbox_events e join postcommit.outbox_queue q using (seq)`,
      );
      expect(row).toMatchObject({
        id,
        event_type: event.type,
        aggregate_type: event.aggregate[0],
        aggregate_id: event.aggregate[1],
        payload: event.payload,
      });
      expect(new Map(Object.entries(JSON.parse(row.headers)))).toEqual(new Map(Object.entries(event.headers ?? {})));
    });

    test('what the catalogue allows, with its version', async () => {
      await inTransaction((tx) =>
        withCatalogue.emit(tx, [
          orderCreated('1'),
          orderCreated('1', { type: 'order.async' }),
          orderCreated('1', { type: 'order.free', payload: null, schemaVersion: 1 }),
        ]),
      );
      const rows = await database.query('select schema_version from postcommit.outbox_events order by seq');
      expect(rows.map((row) => row.schema_version)).toEqual([3, 1, 1]);
    });
  });

  test('options that cannot be right', () => {
    const db = fromPg(pool);
    const refused: [() => unknown, ErrorCode][] = [
      [() => fromPg(undefined as never), 'POSTCOMMIT_E_BAD_OPTION'],
      [() => fromPg({} as never), 'POSTCOMMIT_E_BAD_OPTION'],
      [() => fromPg(new pg.Client() as never), 'POSTCOMMIT_E_BAD_OPTION'],
      [() => createOutbox(undefined as never), 'POSTCOMMIT_E_BAD_OPTION'],
      [() => createOutbox({ db: pool as never }), 'POSTCOMMIT_E_BAD_OPTION'],
      ...[0, -1, 1.5, Number.NaN, 2 ** 30].map((bytes): [() => unknown, ErrorCode] => [
        () => createOutbox({ db, payloadBytesMax: bytes }),
        'POSTCOMMIT_E_BAD_OPTION',
      ]),
      ...['', 'a\0b', 'x'.repeat(64), '€'.repeat(22), 'pg_outbox', 5].map((schema): [() => unknown, ErrorCode] => [
        () => createOutbox({ db, schema: schema as string }),
        'POSTCOMMIT_E_BAD_SCHEMA_NAME',
      ]),
    ];
    for (const [make, code] of refused) expect(make).toThrowError(expect.objectContaining({ code }));
  });
});

/** Text of this many bytes that does not compress: an index has a limit, and PostgreSQL compresses before it looks. */
function noise(bytes: number): string {
  let state = bytes;
  let text = '';
  for (let i = 0; i < bytes; i++) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    text += String.fromCharCode(33 + ((state >>> 16) % 90));
  }
  return text;
}
