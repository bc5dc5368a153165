import type { Executor } from '../database/executor.ts';
import type { Isolation } from '../emit/isolation.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { administrationChecks } from './adapter-administration.ts';
import { faultChecks } from './adapter-faults.ts';
import { outageChecks } from './adapter-outage.ts';
import { refusalChecks } from './adapter-refusals.ts';
import { transactionChecks } from './adapter-transactions.ts';
import type { ConformanceCheck } from './publisher-conformance.ts';

/** What the conformance suite needs to know of a database client: how to connect it, and where. */
export interface AdapterHarness<Tx> {
  /**
   * Connects the client under test to one of the two databases, with a pool of at least four connections, and makes its
   * adapter. The suite closes it.
   */
  connect(database: ConformanceDatabase): Promise<AdapterClient<Tx>>;
  /**
   * A migrated database for the suite alone: it deletes all events, and creates the table `conformance_orders`. Checks
   * that end sessions need a role that may call `pg_terminate_backend`. Checks of outages put a proxy on 127.0.0.1 in front of it, so
   * its connection string is a URL with a host, and the client must not check the name in a certificate.
   */
  database: ConformanceDatabase;
  /** Another one, migrated too. It must have another name. */
  otherDatabase: ConformanceDatabase;
}

/** Runs statements on connections of its own, with `pg`: the suite reads what is committed. A `pg.Pool` does it. */
export interface ConformanceDatabase extends Executor {
  connectionString: string;
}

/** A client that is connected, and what its users do with it. */
export interface AdapterClient<Tx> {
  /** The adapter under test. */
  db: OutboxDatabase<Tx>;
  /** Runs `work` in a transaction, as the client's users open one: not through the adapter. */
  transaction<T>(work: (tx: Tx) => Promise<T>, options?: { isolation?: Isolation }): Promise<T>;
  /** Runs a statement in the transaction, as the client's users do, with `$1`, `$2`, … bound to texts. */
  query(tx: Tx, text: string, values?: string[]): Promise<unknown>;
  /** Runs `work` in a nested transaction of the client. Leave out where it has none. */
  nested?<T>(tx: Tx, work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Handles of the client that are no transaction, by name: its root object, a pool, a session outside of a transaction. */
  notTransactions: Record<string, unknown>;
  /** Runs `work` in a transaction that the client itself ends after this time. Leave out where the client has no such limit. */
  transactionWithTimeout?<T>(timeoutMs: number, work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Closes all connections. Connections that the suite has cut must not make it fail. */
  close(): Promise<void>;
}

/**
 * What every adapter for a database client must do, as checks to run against a real PostgreSQL, one after the other.
 * What the client leaves out is not checked.
 *
 * @example
 * import { it } from 'vitest';
 * import { adapterConformance } from 'postcommit/testing';
 *
 * for (const check of adapterConformance(harness)) it(check.name, check.run, 60_000);
 */
export function adapterConformance<Tx>(harness: AdapterHarness<Tx>): ConformanceCheck[] {
  return [
    ...transactionChecks(harness),
    ...refusalChecks(harness),
    ...faultChecks(harness),
    ...outageChecks(harness),
    ...administrationChecks(harness),
  ];
}
