import { setTimeout as sleep } from 'node:timers/promises';
import { createOutbox, fromPg, type OutboxEvent, type Relay, type RelayOptions } from '../../src/index.ts';
import { createRelay } from '../../src/relay/relay.ts';
import { type Child, endChild, startChild } from './child.ts';
import { createTestDatabase, type TestDatabase } from './database.ts';
import { type Expected, examine, type Findings, Journal } from './journal.ts';
import { type PostgresProxy, startPostgresProxy } from './postgres-proxy.ts';
import type { RelayChildConfig } from './relay.child.ts';
import { type Script, scriptedHandler } from './scripted-handler.ts';
import { until } from './wait.ts';

export type ScenarioRelayOptions = Partial<RelayOptions>;

/** One database, the relays that work on it, and a journal of what their handlers did. */
export class RelayScenario {
  readonly db: TestDatabase;
  readonly journal = new Journal();
  readonly #outbox;
  readonly #relays: Relay[] = [];
  readonly #children: Child[] = [];
  readonly #proxies: PostgresProxy[] = [];

  constructor(db: TestDatabase) {
    this.db = db;
    this.#outbox = createOutbox({ db: fromPg(db.pool) });
  }

  static async create(options: { serverUrl?: string; encoding?: string } = {}): Promise<RelayScenario> {
    return new RelayScenario(await createTestDatabase(options));
  }

  /** The relays in this process. */
  get relays(): readonly Relay[] {
    return this.#relays;
  }

  /** A running relay in this process, with the scripted handler unless others are given. Stopped by close(). */
  async relay(name: string, options: ScenarioRelayOptions = {}): Promise<Relay> {
    const relay = this.idleRelay(name, options);
    await relay.start();
    return relay;
  }

  /** The same, not started. */
  idleRelay(name: string, options: ScenarioRelayOptions = {}): Relay {
    const handlers = { scripted: { script: scriptedHandler(this.journal, name) } };
    const relay = createRelay({ connectionString: this.db.url, name, stopTimeoutMs: 2_000, handlers, ...options });
    this.#relays.push(relay);
    return relay;
  }

  /** A running relay in a process of its own. Killed by close(). */
  async child(
    name: string,
    options: Omit<ScenarioRelayOptions, 'handlers' | 'logger'> = {},
    {
      env,
      ...extra
    }: Pick<RelayChildConfig, 'clockSkewMs' | 'once' | 'threadEnds'> & { env?: Record<string, string> } = {},
  ): Promise<Child> {
    const config: RelayChildConfig = {
      name,
      journalPath: this.journal.path,
      options: { connectionString: this.db.url, ...options },
      ...extra,
    };
    const child = startChild('test/support/relay.child.ts', [JSON.stringify(config)], env);
    this.#children.push(child);
    await child.next(({ event }) => event === 'started', 40_000);
    return child;
  }

  async proxy(): Promise<PostgresProxy> {
    const proxy = await startPostgresProxy(this.db.url);
    this.#proxies.push(proxy);
    return proxy;
  }

  /** Emits in one transaction, in this order. */
  async emit(events: readonly (Partial<OutboxEvent> & { aggregateId: string; script?: Script })[]): Promise<string[]> {
    return this.#outbox.transaction((_tx, emit) =>
      emit(
        events.map(({ aggregateId, script, ...event }) => ({
          type: 'scripted',
          aggregate: ['thing', aggregateId] as const,
          payload: script ?? null,
          ...event,
        })),
      ),
    );
  }

  /** So many events of one aggregate, one behind the other. */
  async emitLine(aggregateId: string, count: number, script?: Script): Promise<string[]> {
    return this.emit(Array.from({ length: count }, () => ({ aggregateId, ...(script ? { script } : {}) })));
  }

  /** All committed events, in order of seq. */
  async expected(): Promise<Expected[]> {
    return this.db.query<Expected>(
      `select seq::text, case when ordering_key = '' then null
              else coalesce(ordering_key, aggregate_type || ':' || aggregate_id) end as key
         from postcommit.outbox_events order by outbox_events.seq`,
    );
  }

  async findings(options: { killed?: readonly string[] } = {}): Promise<Findings> {
    const dead = await this.db.query<{ seq: string }>('select seq::text from postcommit.outbox_dead_letters');
    return examine(this.journal.read(), await this.expected(), { ...options, givenUp: dead.map(({ seq }) => seq) });
  }

  async queued(): Promise<number> {
    const [row] = await this.db.query('select count(*)::integer as n from postcommit.outbox_queue where not blocking');
    return row.n;
  }

  /** Until the queue is empty. */
  async drained(timeoutMs = 30_000): Promise<void> {
    await until(async () => (await this.queued()) === 0, { timeoutMs, what: 'the queue is empty' });
  }

  /** The database's time, in milliseconds. */
  async now(): Promise<number> {
    const [row] = await this.db.query(`select extract(epoch from clock_timestamp()) * 1000 as ms`);
    return Number(row.ms);
  }

  async close(): Promise<void> {
    for (const child of this.#children) await endChild(child);
    for (const proxy of this.#proxies) await proxy.close();
    // A relay whose proxy is gone stops within its deadline; the test's result is known by now.
    await Promise.race([
      Promise.all(this.#relays.map((relay) => relay.stop())),
      sleep(10_000, undefined, { ref: false }),
    ]);
    await this.db.close();
    this.journal.remove();
  }
}

/** Gives the test a scenario and cleans up after it, however it ends. */
export function withScenario(
  test: (scenario: RelayScenario) => Promise<void>,
  options: { encoding?: string } = {},
): () => Promise<void> {
  return async () => {
    const scenario = await RelayScenario.create(options);
    try {
      await test(scenario);
    } finally {
      await scenario.close();
    }
  };
}
