import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createOutbox, defineEvents, type EventCatalogue, fromPg, type OutboxEvent } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

describe('the queue of an event', () => {
  let db: TestDatabase;
  beforeAll(async () => {
    db = await createTestDatabase();
  });
  afterAll(() => db.close());

  const event = (type: string, queue?: string): OutboxEvent => ({
    type,
    aggregate: ['a', '1'],
    payload: null,
    ...(queue === undefined ? {} : { queue }),
  });
  const outbox = () =>
    createOutbox({
      db: fromPg(db.pool),
      // Widened, so that the types of its events are not checked.
      events: defineEvents({ report: { queue: 'reports' }, 'import.begun': {}, order: {} }) as EventCatalogue,
      queueOf: ({ type }) => (type.startsWith('import.') || type === 'report' ? 'imports' : undefined),
    });
  const queueOf = async (id: string) => {
    const [row] = await db.query(
      `select e.queue as log, q.queue from postcommit.outbox_events e join postcommit.outbox_queue q on q.seq = e.seq where e.id = $1`,
      [id],
    );
    return row;
  };

  test.each([
    ['emit, before catalogue and rule', event('report', 'mail'), 'mail'],
    ['emit says default', event('report', 'default'), 'default'],
    ['the catalogue, before the rule', event('report'), 'reports'],
    ['the rule', event('import.begun'), 'imports'],
    ['nothing', event('order'), 'default'],
  ])('is chosen by %s', async (_, given, expected) => {
    for (const write of [
      () => outbox().transaction([], given),
      () => outbox().transaction(async (_tx, emit) => emit(given)),
      async () => {
        const ids = await outbox().transaction(async (tx) => outbox().emit(tx, [given, given]));
        return ids[1] as string;
      },
      async () => {
        const id = crypto.randomUUID();
        await outbox().transaction(async (tx) => outbox().emitOnce(tx, { ...given, id }));
        return id;
      },
    ]) {
      // The default queue takes no room in the log.
      expect(await queueOf(await write())).toEqual({ log: expected === 'default' ? null : expected, queue: expected });
    }
  });

  test.each(['', 'a b', 'a:b', 'ä', 'x'.repeat(101), 5, {}, null])(
    '%j is refused, and nothing is written',
    async (name) => {
      const refused = { code: 'POSTCOMMIT_E_BAD_QUEUE' };
      const [before] = await db.query('select count(*) from postcommit.outbox_events');
      const given = { ...event('order'), queue: name } as unknown as OutboxEvent;
      if (name !== null) await expect(outbox().transaction([], given)).rejects.toMatchObject(refused);
      const byRule = createOutbox({ db: fromPg(db.pool), queueOf: () => name as string });
      await expect(byRule.transaction([], event('order'))).rejects.toMatchObject(refused);
      const byType = () => defineEvents({ order: { queue: name as string } });
      expect(byType).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_CATALOGUE' }));
      expect(await db.query('select count(*) from postcommit.outbox_events')).toEqual([before]);
    },
  );

  test('a rule that throws fails the emit, and one that is not a function is refused', async () => {
    const broken = createOutbox({
      db: fromPg(db.pool),
      queueOf: () => {
        throw new Error('no rule');
      },
    });
    await expect(broken.transaction([], event('order'))).rejects.toThrow('no rule');
    const given = { db: fromPg(db.pool), queueOf: 'reports' } as unknown as Parameters<typeof createOutbox>[0];
    expect(() => createOutbox(given)).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION' }));
  });

  test('a commit notifies the queues of its events, and no other', async () => {
    const listener = await db.pool.connect();
    const payloads: string[] = [];
    listener.on('notification', ({ payload }) => payloads.push(payload ?? ''));
    const [{ channel }] = await db.query(
      `select 'postcommit_' || left(encode(sha256('postcommit'), 'hex'), 16) as channel`,
    );
    await listener.query(`listen ${channel}`);
    const received = async (count: number) => {
      while (payloads.length < count) await listener.query('select 1');
      return payloads.splice(0).sort();
    };
    await outbox().transaction([], event('order'));
    expect(await received(1)).toEqual(['']);
    await outbox().transaction([], event('report'));
    expect(await received(1)).toEqual(['reports']);
    await outbox().transaction([], [event('report'), event('order')]);
    expect(await received(2)).toEqual(['', 'reports']);
    listener.release(true);
  });
});
