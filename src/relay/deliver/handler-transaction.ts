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
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger, SparseLog } from '../../telemetry/logging.ts';
import type { DeliveredEvent } from '../../wire/delivered-event.ts';
import type { ConnectionLosses } from '../event/connection-losses.ts';
import { delivered, released, type TargetOutcome } from '../event/outcome.ts';
import { isReject } from '../event/reject.ts';
import type { HandlerCall } from './handler-call.ts';
import { handlerClient } from './handler-client.ts';
import type { Handler } from './handlers.ts';

export interface HandlerTransactionOptions {
  schema: string;
  pool: SessionPool;
  /** Ends a session whose handler was abandoned in the middle of a statement. */
  control: Executor & { readonly connected: boolean };
  /** The fencing token; empty without a lease. */
  token: () => string;
  /** Resolves when the outcomes of all events that ended before are durable. */
  written: () => Promise<void>;
  logger: Logger;
}

const endSessionSql = `
select pg_catalog.pg_terminate_backend(a.pid) from pg_catalog.pg_stat_activity a
 where a.pid = $1::integer and a.backend_start = $2::timestamptz`;

/** For how long an event is released when its handler cannot get a session, or lost it. */
const unreachableDelayMs = 1_000;
/** A BEGIN, a COMMIT, or the statement before that, that is not answered in this time counts as lost. */
const commitMsMax = 15_000;
/** How long one look at the outcome of a lost COMMIT waits for a transaction that is still open on the server. */
const lookMs = 5_000;

/** The server ended the session because the handler took too long between two statements, or altogether. */
const timeLimitStates: ReadonlySet<string> = new Set(['25P03', '25P04', '57P05']);

/** Distinguishes the transactions of one session. */
let transactions = 0;

/**
 * One call of a transactional handler: begins a transaction, calls the handler with it, settles the event in it and commits. So
 * the effects of the handler commit exactly when its event counts as delivered.
 *
 * Nothing that a handler does after its call has ended can commit: `ctx.tx` refuses it. The session of a handler that still runs
 * then (its time limit, a cancelled event, a lost lease) is closed.
 */
export class HandlerTransaction {
  readonly #options: HandlerTransactionOptions;
  readonly #losses: ConnectionLosses;
  readonly #log: SparseLog;
  readonly #event: HandledEvent;
  readonly #isOrdered: boolean;
  /** The same in every attempt. */
  readonly #call: string;
  readonly #marker = `${process.pid}.${++transactions}`;
  /** The lease under which it began. */
  readonly #token: string;
  /** Whether the handler has returned, with its session intact. */
  #hasReturned = false;
  /** Its outcome, if it is not that of the call. */
  outcome: TargetOutcome | undefined;

  /** All calls share `losses` and `log`. */
  constructor(
    options: HandlerTransactionOptions,
    losses: ConnectionLosses,
    log: SparseLog,
    event: HandledEvent,
    isOrdered: boolean,
  ) {
    this.#options = options;
    this.#losses = losses;
    this.#log = log;
    this.#event = event;
    this.#call = `${event.seq}:${event.handler}`;
    this.#isOrdered = isOrdered;
    this.#token = options.token();
  }

  /** Rejects with what the handler threw, or with why nothing was committed. */
  async run(call: HandlerCall, event: DeliveredEvent, timeoutMs: number, handle: Handler): Promise<void> {
    const { pool } = this.#options;
    call.stopTimeLimit(); // Until the handler is called. pool.acquire() and #begin() have limits of their own.
    let session: PooledSession;
    try {
      session = await pool.acquire();
    } catch (error) {
      // The database is at fault, not the event: no attempt is counted.
      this.#logUnreachable(call, error, 'cannot open a session for a transactional handler, retrying');
      this.outcome = { kind: 'released', delayMs: unreachableDelayMs };
      return;
    }
    if (call.result !== 'running') {
      pool.release(session); // It ended while the session was opened.
      return;
    }
    call.onEarlyEnd = (reason) => this.#close(session, reason);
    try {
      if (!(await this.#begin(session, call, timeoutMs))) {
        this.outcome = { kind: 'released', delayMs: unreachableDelayMs };
        return;
      }
      await this.#work(session, call, event, handle);
      this.#losses.forget(this.#call);
    } catch (error) {
      if (!this.#isOutage(session, call, error)) throw this.#coded(session, error);
      this.outcome = { kind: 'released', delayMs: unreachableDelayMs };
    } finally {
      call.onEarlyEnd = undefined;
    }
  }

  /**
   * Whether the connection was lost and the event is not at fault. The session tells, and not the error: an ECONNREFUSED that the handler
   * throws may be about what the handler called.
   */
  #isOutage(session: PooledSession, call: HandlerCall, error: unknown): boolean {
    if (call.result !== 'running' || isReject(error)) return false;
    const lostWith = this.#options.pool.lostWith(session);
    // Once the handler has returned, the session is idle because results are not written yet.
    const isHandlersTime = !this.#hasReturned && timeLimitStates.has(sqlState(lostWith) ?? '');
    const isLost = lostWith !== undefined && !isHandlersTime;
    if (isLost) return this.#losses.isFree(this.#call);
    this.#losses.forget(this.#call);
    return false;
  }

  /** A connection failure with the session intact is about another connection of the handler. */
  #coded(session: PooledSession, error: unknown): unknown {
    return isConnectionFailure(error) && this.#options.pool.has(session) ? error : codedDatabaseError(error);
  }

  /** Returns false if there is no transaction. The handler was not called then, so the event is not at fault. */
  async #begin(session: PooledSession, call: HandlerCall, timeoutMs: number): Promise<boolean> {
    const limits = {
      statementTimeoutMs: atMost(session.statementTimeoutMs, timeoutMs),
      idleTimeoutMs: atMost(session.idleTimeoutMs, timeoutMs),
    };
    try {
      await this.#answered(session, session.client.query(beginHandlerSql(this.#marker, limits)));
      return true;
    } catch (error) {
      this.#logUnreachable(call, error, 'cannot begin the transaction of a handler, retrying');
      await this.#rollBack(session, error);
      return false;
    }
  }

  /** A role at its connection limit, for example, keeps the event waiting for as long as it lasts. */
  #logUnreachable({ result, handler }: HandlerCall, error: unknown, message: string): void {
    const { pool, logger } = this.#options;
    if (result !== 'running' || pool.isClosed) return; // The relay has ended the call, or stops.
    const fields = { handler, retryInMs: unreachableDelayMs, error: errorText(codedDatabaseError(error)) };
    this.#log.say(message, (suppressed) => logger.warn({ suppressed, ...fields }, message));
  }

  async #work(session: PooledSession, call: HandlerCall, event: DeliveredEvent, handle: Handler): Promise<void> {
    const { schema } = this.#options;
    const { client } = session;
    try {
      call.transaction = handlerClient(client, () => call.transaction !== undefined);
      call.startTimeLimit();
      try {
        await handle(event, call);
        this.#hasReturned = this.#options.pool.has(session);
      } finally {
        call.stopTimeLimit();
        call.transaction = undefined; // A statement from now on would run after COMMIT or ROLLBACK.
      }
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
      throw error;
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
      this.#close(session, error as Error);
      const found = await this.#findOutcome();
      if (found === 'rolledBack') throw error;
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
        const beginSql = `begin isolation level read committed; set local lock_timeout = ${lookMs}`;
        await this.#answered(session, client.query(beginSql));
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
    if (sqlState(error) === '25006' || !pool.has(session)) {
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

  /**
   * A server that runs a statement notices a closed connection only when the statement has ended, so its session is ended from
   * another one. Not later, when `control` is down: the session has ended with its server, or ends after its statement.
   */
  #close(session: PooledSession, reason?: Error): void {
    const { pool, control } = this.#options;
    const { pid, startedAt } = session;
    if (pid !== undefined && startedAt !== undefined && control.connected) {
      control.query(endSessionSql, [pid, startedAt]).catch(() => {});
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
