import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import {
  type ConsumerOptions,
  createInbox,
  type EventConsumer,
  fromPg,
  type IncomingMessage,
  type ReceivedEvent,
  Reject,
} from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { deferred, until, within } from '../support/wait.ts';

/** What a test publishes. */
export interface TestMessage extends IncomingMessage {
  readonly key: string | null;
  readonly headers: Readonly<Record<string, string>>;
}

/** A queue of a real broker, and how its consumer is made. */
export interface ConsumerScene {
  publish(messages: readonly TestMessage[]): Promise<void>;
  consumer(options: ConsumerOptions<pg.PoolClient>): EventConsumer;
  /** The bodies of all dead letters, and of each the reason where the broker carries one. */
  deadLetters(count: number): Promise<{ body: string; reason?: string | undefined }[]>;
  /** How many messages the broker has delivered and not seen acknowledged, with the connections of consumers closed. */
  unsettled?(): Promise<number>;
  /** Breaks the connections of consumers, and lets them connect again. */
  cutConnections?(): Promise<void>;
}

export const silent = { debug() {}, info() {}, warn() {}, error() {} };

export function envelopeOf(key: string, n: number, id: string = randomUUID()): TestMessage {
  const body = JSON.stringify({
    eventId: id,
    eventType: 'order.created',
    eventSeq: String(n + 1),
    schemaVersion: 1,
    occurredAt: '2026-01-31T12:00:00.000Z',
    traceId: null,
    aggregate: { type: 'order', id: key },
    data: { n },
  });
  const headers = { 'event-id': id, 'event-type': 'order.created', 'event-key': key };
  return { body, headers, contentType: 'application/json', key };
}

const numberOf = (event: ReceivedEvent) => (event.payload as { n: number }).n;

/** What the consumer of every broker must do. `createScene` makes a new queue for each test. */
export function testConsumer(
  title: string,
  createScene: () => Promise<ConsumerScene>,
  { cutsConnections = false }: { cutsConnections?: boolean } = {},
): void {
  describe(`the consumer of ${title}`, () => {
    let db: TestDatabase;
    beforeAll(async () => {
      db = await createTestDatabase();
      await db.query('create table effects (id serial, event_id uuid, key text, n integer)');
    });
    afterAll(() => db.close());

    /** A consumer that books each event in its own transaction. */
    async function booking(scene: ConsumerScene, before?: (event: ReceivedEvent, signal: AbortSignal) => unknown) {
      const name = randomUUID();
      const consumer = scene.consumer({
        inbox: createInbox({ db: fromPg<pg.PoolClient>(db.pool) }).consumer(name),
        transactional: true,
        retry: { delaysMs: [1, 1] },
        logger: silent,
        async handle(event, { tx, signal }) {
          await before?.(event, signal);
          const values = [event.id, `${name} ${event.key}`, numberOf(event)];
          await tx.query('insert into effects (event_id, key, n) values ($1, $2, $3)', values);
        },
      });
      onTestFinished(() => consumer.stop());
      await consumer.start();
      const effects = async () => {
        const rows = await db.query('select key, n from effects where key like $1 order by id', [`${name} %`]);
        return rows.map(({ key, n }) => ({ key: key.slice(name.length + 1), n }));
      };
      return { consumer, effects };
    }

    const settled = (consumer: EventConsumer, count: number) =>
      until(
        () => {
          const { processed, duplicates, deadLettered } = consumer.stats();
          return processed + duplicates + deadLettered >= count;
        },
        { what: `${count} messages are settled`, timeoutMs: 30_000 },
      );

    test('an event that is published three times has one effect', async () => {
      const scene = await createScene();
      const { consumer, effects } = await booking(scene);
      const message = envelopeOf('a', 0);
      await scene.publish([message, message, message, envelopeOf('a', 1)]);
      await settled(consumer, 4);
      expect(await effects()).toEqual([
        { key: 'a', n: 0 },
        { key: 'a', n: 1 },
      ]);
      expect(consumer.stats()).toMatchObject({ processed: 2, duplicates: 2, deadLettered: 0 });
    });

    test('events of one key are processed in order while others run in parallel', async () => {
      const scene = await createScene();
      const running = new Map<string, number>();
      let together = 0;
      const { consumer, effects } = await booking(scene, async (event) => {
        const key = event.key as string;
        running.set(key, (running.get(key) ?? 0) + 1);
        expect(running.get(key)).toBe(1);
        together = Math.max(together, [...running.values()].filter((count) => count > 0).length);
        await new Promise((resolve) => setTimeout(resolve, numberOf(event) % 3));
        running.set(key, 0);
      });
      const messages = Array.from({ length: 60 }, (_, index) => envelopeOf(`k${index % 4}`, Math.floor(index / 4)));
      await scene.publish(messages);
      await settled(consumer, 60);
      const found = await effects();
      expect(found).toHaveLength(60);
      for (const key of ['k0', 'k1', 'k2', 'k3']) {
        expect(found.filter((one) => one.key === key).map(({ n }) => n)).toEqual(
          Array.from({ length: 15 }, (_, n) => n),
        );
      }
      expect(together).toBeGreaterThan(1);
      expect(consumer.stats()).toMatchObject({ processed: 60, failed: 0 });
    });

    test('what cannot be read is a dead letter at once, what fails for good after its attempts; the rest goes on', async () => {
      const scene = await createScene();
      const calls: number[] = [];
      const { consumer, effects } = await booking(scene, (event) => {
        calls.push(numberOf(event));
        if (numberOf(event) === 1) throw new Error('out of paper');
        if (numberOf(event) === 2) throw new Reject('no such customer');
      });
      const bad = (body: string) => ({ ...envelopeOf('a', 0), body, headers: {} });
      const future = JSON.stringify({ envelopeVersion: 2, eventId: randomUUID(), what: 'ever' });
      const notUuid = String(envelopeOf('a', 0, 'order-7').body);
      const poison = envelopeOf('a', 1);
      const rejected = envelopeOf('a', 2);
      await scene.publish([bad('{"not": json'), bad(future), bad(notUuid), poison, rejected, envelopeOf('a', 3)]);
      await settled(consumer, 6);
      expect(await effects()).toEqual([{ key: 'a', n: 3 }]);
      expect(calls).toEqual([1, 1, 1, 2, 3]);
      expect(consumer.stats()).toMatchObject({ processed: 1, failed: 2, deadLettered: 5 });
      const letters = await scene.deadLetters(5);
      const bodies = ['{"not": json', future, notUuid, poison.body, rejected.body];
      expect(letters.map(({ body }) => body).sort()).toEqual(bodies.map(String).sort());
      const reasons = letters.flatMap(({ reason }) => reason ?? []);
      if (reasons.length === 0) return; // RabbitMQ carries none.
      const codes = ['POSTCOMMIT_E_BAD_MESSAGE', 'POSTCOMMIT_E_ENVELOPE_VERSION', 'POSTCOMMIT_E_BAD_ID'];
      for (const part of [...codes, 'out of paper', 'no such customer']) expect(reasons.join('\n')).toContain(part);
    });

    test('stop finishes what is in flight and acknowledges it; the next consumer gets the rest', async () => {
      const scene = await createScene();
      const started = deferred();
      const finish = deferred();
      const first = await booking(scene, async () => {
        started.resolve();
        await finish.promise;
      });
      await scene.publish([envelopeOf('a', 0), envelopeOf('a', 1), envelopeOf('a', 2)]);
      await within(started.promise, { what: 'the first one is in flight', timeoutMs: 30_000 });
      const stopped = first.consumer.stop();
      finish.resolve();
      await stopped;
      expect(await first.effects()).toEqual([{ key: 'a', n: 0 }]);
      expect(first.consumer.stats()).toMatchObject({ state: 'idle', inFlight: 0, waiting: 0 });

      // With an inbox of its own: it would process the first one if that were delivered again.
      const second = await booking(scene);
      await settled(second.consumer, 2);
      await second.consumer.stop();
      expect(await second.effects()).toEqual([
        { key: 'a', n: 1 },
        { key: 'a', n: 2 },
      ]);
    });

    test('stop acknowledges the last message in flight before it resolves', async () => {
      const scene = await createScene();
      const started = deferred();
      const finish = deferred();
      const first = await booking(scene, async () => {
        started.resolve();
        await finish.promise;
      });
      await scene.publish([envelopeOf('a', 0)]);
      await within(started.promise, { what: 'it is in flight', timeoutMs: 30_000 });
      const stopped = first.consumer.stop();
      finish.resolve();
      await stopped;
      expect(await first.effects()).toEqual([{ key: 'a', n: 0 }]);
      await scene.unsettled?.().then((count) => expect(count).toBe(0));

      const second = await booking(scene);
      await scene.publish([envelopeOf('a', 1)]);
      await settled(second.consumer, 1);
      await second.consumer.stop();
      expect(await second.effects()).toEqual([{ key: 'a', n: 1 }]);
    });

    test('stop gives up handlers that ignore it, and their messages are delivered again', async () => {
      const scene = await createScene();
      const started = deferred<AbortSignal>();
      const consumer = scene.consumer({
        stopTimeoutMs: 50,
        logger: silent,
        async handle(_event, { signal }) {
          started.resolve(signal);
          await new Promise(() => {});
        },
      });
      await consumer.start();
      await scene.publish([envelopeOf('a', 0)]);
      const signal = await within(started.promise, { what: 'it is in flight', timeoutMs: 30_000 });
      await within(consumer.stop(), { what: 'the consumer has stopped', timeoutMs: 20_000 });
      expect(signal.reason).toMatchObject({ code: 'POSTCOMMIT_E_CONSUMER_STOPPING' });
      const second = await booking(scene);
      await settled(second.consumer, 1);
      expect(await second.effects()).toEqual([{ key: 'a', n: 0 }]);
    });

    if (!cutsConnections) return;

    test('a lost connection in the middle: every effect once, in order', async () => {
      const scene = await createScene();
      const reached = deferred();
      const { consumer, effects } = await booking(scene, (event) => {
        if (numberOf(event) === 5) reached.resolve();
      });
      await scene.publish(Array.from({ length: 20 }, (_, n) => envelopeOf('a', n)));
      await within(reached.promise, { what: 'it is in the middle', timeoutMs: 30_000 });
      await scene.cutConnections?.();
      await scene.publish(Array.from({ length: 20 }, (_, n) => envelopeOf('a', 20 + n)));
      await until(async () => (await effects()).length === 40, { what: 'all are processed', timeoutMs: 40_000 });
      expect((await effects()).map(({ n }) => n)).toEqual(Array.from({ length: 40 }, (_, n) => n));
      expect(consumer.stats().deadLettered).toBe(0);
    });
  });
}
