import type pg from 'pg';
import {
  createOutbox,
  createRelay,
  type DeliveredEvent,
  fromPg,
  type HandlerContext,
  type Outbox,
  type OutboxAdmin,
  type OutboxEvent,
  Reject,
  type Relay,
  type RelayOptions,
} from '../../src/index.ts';
import { deregisterRelay } from '../../src/outbox/delivering/deregister-relay.ts';
import { fail } from '../../src/outbox/delivering/fail.ts';
import { registerDestinations } from '../../src/outbox/delivering/register-destinations.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { createTestDatabase, type TestDatabase, type TestDatabaseOptions } from '../support/database.ts';
import { type Deferred, deferred, until } from '../support/wait.ts';

/** What the handler `work` is to do with an event. Its payload says so. */
export interface Script {
  does?: 'ok' | 'fail' | 'reject' | 'hang';
  /** For `fail`: how many attempts fail. Default: all. */
  times?: number;
}

export type SceneEvent = Partial<Omit<OutboxEvent, 'payload'>> & { payload?: Script };

/** A database with an outbox, relays that do what an event's payload says, and a note of every delivery that worked. */
export class Scene {
  readonly db: TestDatabase;
  readonly outbox: Outbox<pg.PoolClient>;
  readonly admin: OutboxAdmin;
  /** Ids in the order in which `work` was done with them. */
  readonly delivered: string[] = [];
  /** From now on every event is delivered, whatever its payload says. */
  healed = false;
  /** How many deliveries hang. */
  hanging = 0;
  readonly #over: Deferred<void> = deferred();
  readonly #relays: Relay[] = [];

  constructor(db: TestDatabase) {
    this.db = db;
    this.outbox = createOutbox<pg.PoolClient>({ db: fromPg(db.pool) });
    this.admin = this.outbox.admin;
  }

  static async create(options?: TestDatabaseOptions): Promise<Scene> {
    return new Scene(await createTestDatabase(options));
  }

  /** Emits in one transaction, in this order. */
  async emit(events: readonly SceneEvent[]): Promise<string[]> {
    return this.outbox.transaction((_tx, emit) =>
      emit(
        events.map((event) => ({
          type: 'order.created',
          aggregate: ['order', '1'] as const,
          ...event,
          payload: event.payload ?? {},
        })),
      ),
    );
  }

  async emitOne(event: SceneEvent = {}): Promise<string> {
    const [id] = await this.emit([event]);
    return id as string;
  }

  /** A running relay. Without other options it gives an event up at its first failure. */
  async relay(options: Partial<RelayOptions> = {}): Promise<Relay> {
    const work = (event: DeliveredEvent<Script>, ctx: HandlerContext) => this.#work(event, ctx);
    const relay = createRelay({
      connectionString: this.db.url,
      name: 'tester',
      handlers: { 'order.created': { work }, 'order.paid': { work }, 'invoice.sent': { work } },
      retry: { delaysMs: [] },
      deliverTimeoutMs: 600_000,
      stopTimeoutMs: 0,
      ...options,
    });
    this.#relays.push(relay);
    await relay.start();
    return relay;
  }

  async #work(event: DeliveredEvent<Script>, ctx: HandlerContext): Promise<void> {
    const { does = 'ok', times = Number.POSITIVE_INFINITY } = event.payload;
    if (!this.healed) {
      if (does === 'hang') {
        this.hanging++;
        await this.#over.promise;
      }
      if (does === 'reject') throw new Reject('rejected as scripted');
      if (does === 'fail' && ctx.attempt <= times) throw new Error(`attempt ${ctx.attempt} failed as scripted`);
    }
    this.delivered.push(event.id);
  }

  /** Until so many events have this status. */
  async untilStatus(status: string, count: number): Promise<void> {
    await until(async () => (await this.#countStatus(status)) === count, {
      timeoutMs: 20_000,
      what: `${count} events are ${status}`,
    });
  }

  async #countStatus(status: string): Promise<number> {
    const sql = 'select count(*)::integer as n from postcommit.outbox_status where status = $1';
    const [row] = await this.db.query<{ n: number }>(sql, [status]);
    return row?.n ?? 0;
  }

  /** Until so many events are parked behind a held one. */
  async untilParked(count: number): Promise<void> {
    await until(async () => (await this.parked()) === count, {
      timeoutMs: 20_000,
      what: `${count} events are parked`,
    });
  }

  async parked(): Promise<number> {
    const [row] = await this.db.query<{ n: number }>(
      `select count(*)::integer as n from postcommit.outbox_queue where available_at = 'infinity' and not blocking`,
    );
    return row?.n ?? 0;
  }

  async seqOf(id: string): Promise<string> {
    const [row] = await this.db.query<{ seq: string }>('select seq::text from postcommit.outbox_events where id = $1', [
      id,
    ]);
    return row?.seq ?? '';
  }

  /** Lets events wait for destinations, as a relay does it, after it has delivered them to `done`. */
  async shelve(ids: readonly string[], waitsFor: readonly string[], done: readonly string[] = []): Promise<void> {
    const { pool } = this.db;
    await registerDestinations(pool, 'postcommit', waitsFor);
    const token = await registerRelay(pool, 'postcommit', { name: 'shelving', host: 'host', pid: 1, leaseMs: 60_000 });
    const held = await this.db.query<{ seq: string; attempts: number }>(
      `update postcommit.outbox_queue q set claimed_by = $1 from postcommit.outbox_events e
        where e.seq = q.seq and e.id = any ($2::uuid[]) returning q.seq::text, q.attempts`,
      [token, ids],
    );
    const failures = held.map((row) => ({ ...row, transition: 'shelve' as const, done, waitsFor }));
    const query = (text: string, values: unknown[]) => pool.query({ text, values, rowMode: 'array' });
    const lost = await fail(query, 'postcommit', token, failures);
    await deregisterRelay(pool, 'postcommit', token);
    if (held.length !== ids.length || lost.length > 0)
      throw new Error(`shelved ${held.length} of ${ids.length} events`);
  }

  /** Seqs that no number can tell apart: from past 2^53 on. */
  async useHugeSeqs(): Promise<void> {
    await this.db.query('alter table postcommit.outbox_events alter column seq restart with 9007199254741002');
  }

  async close(): Promise<void> {
    this.#over.reject(new Error('the test is over'));
    await Promise.all(this.#relays.map((relay) => relay.stop()));
    await this.db.close();
  }
}
