import { setTimeout as sleep } from 'node:timers/promises';
import { codedDatabaseError, isConnectionFailure, sqlState } from '../../database/database-error.ts';
import type { Executor } from '../../database/executor.ts';
import type { PooledSession, SessionPool } from '../../database/session-pool.ts';
import { PostcommitError } from '../../errors.ts';
import {
  beginHandlerSql,
  findHandled,
  type HandledEvent,
  settleInTransaction,
} from '../../outbox/delivering/settle-in-transaction.ts';
import type { DeliveredEvent } from '../../wire/delivered-event.ts';
import { delivered, released, type TargetOutcome } from '../event/outcome.ts';
import type { HandlerCall } from './handler-call.ts';
import type { Handler } from './handlers.ts';

export interface HandlerTransactionOptions {
  schema: string;
  pool: SessionPool;
  /** Ends a session whose handler was abandoned in the middle of a statement. */
  control: Executor;
  /** The fencing token; empty without a lease. */
  token: () => string;
  /** Resolves when the outcomes of all events that ended before are durable. */
  written: () => Promise<void>;
}

/** For how long an event is released when its handler cannot get a session. */
const unreachableDelayMs = 1_000;
/** A COMMIT, or the statement before it, that is not answered in this time counts as lost. */
const commitMsMax = 15_000;
/** How long one look at the outcome of a lost COMMIT waits for a transaction that is still open on the server. */
const lookMs = 5_000;

/** Distinguishes the transactions of one session. */
let transactions = 0;

/**
 * One call of a transactional handler: begins a transaction, calls the handler with it, settles the event in it and commits. So
 * the effects of the handler commit exactly when its event counts as delivered.
 *
 * Nothing that a call does after it has ended (its time limit, a cancelled event, a lost lease) can commit: its session is closed.
 */
export class HandlerTransaction {
  readonly #options: HandlerTransactionOptions;
  readonly #event: HandledEvent;
  readonly #isOrdered: boolean;
  readonly #marker = `${process.pid}.${++transactions}`;
  /** The lease under which it began. */
  readonly #token: string;
  /** Its outcome, if it is not that of the call. */
  outcome: TargetOutcome | undefined;

  constructor(options: HandlerTransactionOptions, event: HandledEvent, isOrdered: boolean) {
    this.#options = options;
    this.#event = event;
    this.#isOrdered = isOrdered;
    this.#token = options.token();
  }

  /** Rejects with what the handler threw, or with why nothing was committed. */
  async run(call: HandlerCall, event: DeliveredEvent, timeoutMs: number, handle: Handler): Promise<void> {
    const { pool } = this.#options;
    let session: PooledSession;
    try {
      session = await pool.acquire();
    } catch {
      // The database is at fault, not the event: no attempt is counted.
      this.outcome = { kind: 'released', delayMs: unreachableDelayMs };
      return;
    }
    if (call.result !== 'running') {
      pool.release(session); // It ended while the session was opened.
      return;
    }
    call.onEarlyEnd = (reason) => this.#close(session, reason);
    try {
      await this.#work(session, call, event, timeoutMs, handle);
    } finally {
      call.onEarlyEnd = undefined;
      call.transaction = undefined;
    }
  }

  async #work(
    session: PooledSession,
    call: HandlerCall,
    event: DeliveredEvent,
    timeoutMs: number,
    handle: Handler,
  ): Promise<void> {
    const { schema } = this.#options;
    const { client } = session;
    try {
      const limits = {
        statementTimeoutMs: atMost(session.statementTimeoutMs, timeoutMs),
        idleTimeoutMs: atMost(session.idleTimeoutMs, timeoutMs),
      };
      await client.query(beginHandlerSql(this.#marker, limits));
      call.transaction = client;
      await handle(event, call);
      // An event of the key that was delivered before must not be delivered again after the effects of this one.
      if (this.#isOrdered) await this.#options.written();
      if (!call.beginCommit()) throw new PostcommitError('POSTCOMMIT_E_LEASE_LOST'); // The call decides what it counts as.
      const settling = settleInTransaction(client, schema, this.#token, this.#event, this.#marker);
      const result = await this.#answered(session, settling);
      if (result === 'ended') throw new PostcommitError('POSTCOMMIT_E_HANDLER_ENDED_TRANSACTION');
      if (result === 'fenced') {
        await this.#rollBack(session);
        this.outcome = released; // Its result is refused as well, and counted there.
        return;
      }
    } catch (error) {
      await this.#rollBack(session, error);
      throw codedDatabaseError(error);
    }
    await this.#commit(session);
  }

  async #commit(session: PooledSession): Promise<void> {
    const { pool } = this.#options;
    try {
      const { command } = await this.#answered(session, session.client.query('commit'));
      if (command !== 'COMMIT') throw new PostcommitError('POSTCOMMIT_E_TRANSACTION_ABORTED');
      pool.release(session);
    } catch (error) {
      if (!isConnectionFailure(error)) {
        // A deferred constraint, for example: PostgreSQL has rolled back.
        await this.#rollBack(session, error);
        throw error;
      }
      this.#close(session);
      const found = await this.#findOutcome();
      if (found === 'rolledBack') throw codedDatabaseError(error);
      if (found !== 'committed') {
        this.outcome = released;
        return;
      }
    }
    this.outcome = this.#event.targets === undefined ? delivered : settledTarget;
  }

  /** After a COMMIT without an answer. Looks until it is known, or the lease is lost: the next owner then finds out. */
  async #findOutcome(): Promise<'committed' | 'rolledBack' | 'fenced' | 'unknown'> {
    const { pool, schema, token } = this.#options;
    while (token() === this.#token) {
      let session: PooledSession | undefined;
      try {
        session = await pool.acquire();
        const { client } = session;
        await client.query(`begin isolation level read committed; set local lock_timeout = ${lookMs}`);
        const found = await this.#answered(session, findHandled(client, schema, this.#token, this.#event));
        await this.#rollBack(session);
        return found;
      } catch (error) {
        if (session) await this.#rollBack(session, error);
        if (pool.isClosed) return 'unknown';
        await sleep(200);
      }
    }
    return 'unknown';
  }

  async #rollBack(session: PooledSession, error?: unknown): Promise<void> {
    const { pool } = this.#options;
    // A server that has become a standby: the next session looks for the primary.
    if (isConnectionFailure(error) || sqlState(error) === '25006' || !pool.has(session)) {
      pool.discard(session);
      return;
    }
    try {
      await this.#answered(session, session.client.query('rollback'));
      pool.release(session);
    } catch {
      pool.discard(session);
    }
  }

  /** A server that runs a statement notices a closed connection only when the statement has ended. */
  #close(session: PooledSession, reason?: Error): void {
    const { pool, control } = this.#options;
    if (session.pid !== undefined) {
      control.query('select pg_catalog.pg_terminate_backend($1::integer)', [session.pid]).catch(() => {});
    }
    pool.discard(session, reason);
  }

  async #answered<Answer>(session: PooledSession, answer: Promise<Answer>): Promise<Answer> {
    const timer = setTimeout(() => {
      const error = new Error(`Connection terminated: PostgreSQL sent nothing for ${commitMsMax} ms`);
      this.#options.pool.discard(session, error);
    }, commitMsMax);
    try {
      return await answer;
    } finally {
      clearTimeout(timer);
    }
  }
}

const settledTarget: TargetOutcome = { kind: 'delivered', isSettled: true };

/** The shorter of two time limits. 0: none. */
function atMost(limitMs: number, ms: number): number {
  return limitMs > 0 ? Math.min(limitMs, ms) : ms;
}
