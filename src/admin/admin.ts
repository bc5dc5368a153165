import type { Executor } from '../database/executor.ts';
import { notifyInProcess, notifyRelays } from '../outbox/emitting/notify.ts';
import { pauseDestination, resumeDestination } from '../outbox/operating/pause-destination.ts';
import type { Operator } from './audit.ts';
import { AuditTrail } from './audit.ts';
import type { CancelOptions, CancelResult, ReplayOptions, ReplayResult, UndeliveredResult } from './bulk.ts';
import { cancelEvents, makeEventsDue, replayEvents, requeueAllUnqueued, resolveDeadLetters } from './bulk.ts';
import type { BulkOptions, BulkResult } from './chunks.ts';
import type { PauseOptions } from './destinations.ts';
import { changeDestination, checkReason } from './destinations.ts';
import type { EditedEvent } from './editing.ts';
import { editAndRetryDeadLetter } from './editing.ts';
import { withErrorCodes } from './error-codes.ts';
import type { DeadLetterTarget, ReplayTarget, UndeliveredTarget } from './filters.ts';
import type { ForgetOptions, ForgetResult } from './forgotten-targets.ts';
import { forgetTarget } from './forgotten-targets.ts';
import { OutboxInspector } from './inspector.ts';
import { checkOptionNames } from './option-names.ts';
import { PartitionAdmin } from './partitions.ts';
import type { PruneOptions, PruneResult } from './pruning.ts';
import { prune } from './pruning.ts';
import { pauseKnownQueue, resumeKnownQueue } from './queues.ts';
import { ScheduleAdmin } from './schedules.ts';

export interface OutboxAdminOptions {
  /** Runs single statements, each in a transaction of its own, on any connection. */
  db: Executor;
  schema: string;
  /** Wake up relays of other processes with NOTIFY. */
  notify: boolean;
}

/**
 * Operations for operators: find and list events, retry or discard dead letters, pause and resume destinations. Created by
 * `outbox.admin`.
 *
 * All methods stay fast with millions of events: pages start where the previous page ended, counts are capped, and bulk
 * operations work in chunks of 1,000 events, each in a transaction of its own. If a bulk operation fails or its `signal`
 * stops it, completed chunks stay committed, and it can be called again.
 */
export class OutboxAdmin extends OutboxInspector {
  readonly #notify: boolean;
  /** The partitions of the log: list, convert, rotate, drop. */
  readonly partitions: PartitionAdmin;
  /** The schedules of relays: list, pause, resume, trigger, remove. */
  readonly schedules: ScheduleAdmin;

  constructor(options: OutboxAdminOptions, operator: Operator = {}) {
    const { db, schema, notify } = options;
    super(db, schema, new AuditTrail(db, schema, operator));
    this.#notify = notify;
    this.partitions = new PartitionAdmin(db, schema, this.trail);
    this.schedules = new ScheduleAdmin(db, schema, this.trail);
  }

  /**
   * The same operations on behalf of a person or program: `audit()` then tells who it was, and why.
   *
   * @example
   * await outbox.admin.as({ by: 'ann', reason: 'the broker is up again' }).retry({ error: 'ECONNREFUSED' });
   */
  as(operator: Operator): OutboxAdmin {
    return new OutboxAdmin({ db: this.db, schema: this.schema, notify: this.#notify }, operator);
  }

  /**
   * Puts dead letters back into the queue, due now, with their attempts reset. Handlers and destinations that already have
   * the event do not get it again, and its error history is kept. Events that a blocking dead letter held back follow it, in
   * order. Discarded dead letters are retried only by id or with `includeDiscarded`.
   *
   * Brokers that deduplicate get the deduplication id of the earlier attempts, so they drop an event that they stored in an
   * attempt whose response was lost. If that copy was deleted at the broker, `replay` the event after it is SENT.
   *
   * Returns how many were changed. Ids that are not dead letters are not counted. An empty filter is an error.
   *
   * @example
   * await admin.retry({ ids: ['0198c5a2-7d9e-7cc3-98c4-dc0c0c07398f'] });
   * const { count } = await admin.retry({ type: 'order.created', error: 'ECONNREFUSED' });
   */
  retry(target: DeadLetterTarget, options: BulkOptions = {}): Promise<BulkResult> {
    return this.#bulk('retry', target, (db) => resolveDeadLetters(db, this.schema, 'retry', target, options));
  }

  /**
   * Discards dead letters: they are never delivered, and they no longer block their aggregate. The events stay FAILED, with
   * their history.
   *
   * @example
   * const weekAgo = new Date(Date.now() - 7 * 24 * 3_600_000);
   * const { count } = await admin.discard({ reason: 'rejected', to: weekAgo });
   */
  discard(target: DeadLetterTarget, options: BulkOptions = {}): Promise<BulkResult> {
    return this.#bulk('discard', target, (db) => resolveDeadLetters(db, this.schema, 'discard', target, options));
  }

  /**
   * Gives a dead letter another payload and puts it back into the queue, as `retry` does. The log
   * keeps the payload as it was emitted; `find()` has both, with who edited it and why. Handlers and destinations that already
   * have the event keep the payload that they got. Headers and the schema version stay. The payload is not checked against a
   * catalogue. Fails if the event is not a dead letter, for example because another operator has retried it.
   *
   * @example
   * await admin.as({ by: 'ann', reason: 'the amount was negative' }).editAndRetry(id, { orderId: '42', amount: 100 });
   */
  editAndRetry(idOrSeq: string, payload: unknown): Promise<EditedEvent> {
    return this.#bulk('editAndRetry', { ids: [idOrSeq] }, (db) =>
      editAndRetryDeadLetter(db, this.schema, idOrSeq, payload, this.trail),
    );
  }

  /**
   * Delivers events again that were already delivered: with the same id, to all of their targets, in order per aggregate.
   * Brokers that deduplicate store them again, because each replay has its own deduplication ids. Consumers that deduplicate
   * by event id skip them. Events that are queued, shelved or dead letters are not changed. `from` and `to` select by the time
   * of emit. To continue an interrupted replay, pass its `next` as `after`.
   *
   * @example
   * const { count } = await admin.replay({ type: 'order.created', from: new Date('2026-03-01'), to: new Date('2026-03-02') });
   */
  replay(target: ReplayTarget, options: ReplayOptions = {}): Promise<ReplayResult> {
    return this.#bulk('replay', target, (db) => replayEvents(db, this.schema, target, options));
  }

  /**
   * Makes undelivered events due now that are delayed (`delayMs`, `availableAt`) or in backoff after a failed attempt. Later
   * events of their aggregates follow, in order. An event that waits for an earlier event of its aggregate still does.
   * Returns how many were changed, and how many were not because a live relay has claimed them (`inFlight`).
   *
   * @example
   * const { count } = await admin.makeDue({ ids: ['0198c5a2-7d9e-7cc3-98c4-dc0c0c07398f'] });
   */
  makeDue(target: UndeliveredTarget, options: BulkOptions = {}): Promise<UndeliveredResult> {
    return this.#bulk('makeDue', target, (db) => makeEventsDue(db, this.schema, target, options));
  }

  /**
   * Cancels undelivered events, in the queue or on the shelf: they are never delivered, and later events of their
   * aggregates no longer wait for them. Each becomes a discarded dead letter with the reason `cancelled`, who cancelled it and
   * why; `retry` by id puts it back into the queue. For dead letters use `discard`.
   *
   * Events that a relay is delivering are cancelled too (`running`): within about a second their handlers find `ctx.signal`
   * aborted, and no result counts. Later events of the aggregate wait until the handler has ended, for at most 250 ms after
   * the abort. What a destination or another system already has is not taken back. If the delivery is recorded first, the
   * event stays delivered (`delivered`).
   *
   * @example
   * const { count, running } = await admin.cancel({ aggregate: ['order', '42'] }, { by: 'ann', reason: 'test data' });
   */
  cancel(target: UndeliveredTarget, options: CancelOptions = {}): Promise<CancelResult> {
    const { by = this.trail.by, reason = this.trail.reason } = options ?? {};
    const work = (db: Executor) => cancelEvents(db, this.schema, target, { ...options, by, reason });
    return this.#bulk('cancel', target, work, { by, reason });
  }

  /**
   * Queues unqueued events: events in the log that are not queued, not shelved, not dead letters and not recorded as delivered. Unqueued events
   * exist only if the trigger `outbox_events_enqueue` was disabled, or rows were deleted from the queue by hand. They are
   * delivered in order per aggregate, but later events of the same aggregate may already have been delivered. Returns how
   * many were queued.
   *
   * @example
   * const { count } = await admin.requeueUnqueued();
   */
  requeueUnqueued(options: BulkOptions = {}): Promise<BulkResult> {
    return this.#bulk('requeueUnqueued', {}, (db) => requeueAllUnqueued(db, this.schema, options));
  }

  /**
   * Stops sending to a destination, in every relay, until `resumeDestination`. Its events stay queued and no attempt is counted.
   * Deliveries in flight may still arrive, and other destinations are not affected. Pausing a paused destination only
   * changes the reason.
   *
   * @example
   * await admin.pauseDestination('kafka', { reason: 'cluster upgrade, until 14:00' });
   */
  pauseDestination(destination: string, options: PauseOptions = {}): Promise<void> {
    return withErrorCodes(async () => {
      checkOptionNames(options, 'pauseDestination', ['reason']);
      const reason = checkReason(options.reason ?? this.trail.reason);
      const work = (db: Executor, schema: string, name: string) => pauseDestination(db, schema, name, reason);
      await this.#change('pauseDestination', destination, work, reason);
    });
  }

  /**
   * Ends a pause: relays send the events that waited, oldest first, at most `drainRateMax` per second. If the destination is
   * down, a relay probes it now instead of at its next probe.
   *
   * @example
   * await admin.resumeDestination('kafka');
   */
  resumeDestination(destination: string): Promise<void> {
    return withErrorCodes(() => this.#change('resumeDestination', destination, resumeDestination));
  }

  /** Makes relays claim nothing from a queue, until `resumeQueue`. What they have claimed ends normally. */
  pauseQueue(name: string, options: PauseOptions = {}): Promise<void> {
    return withErrorCodes(async () => {
      const reason = checkReason(options?.reason ?? this.trail.reason);
      const work = (db: Executor) => pauseKnownQueue(db, this.schema, name, { ...options, reason });
      await this.trail.record('pauseQueue', { queue: name }, work, { reason });
    });
  }

  /** Ends the pause of a queue, and notifies relays. */
  resumeQueue(name: string): Promise<void> {
    return this.#bulk('resumeQueue', { queue: name }, (db) => resumeKnownQueue(db, this.schema, name));
  }

  /**
   * Stops owing events to a destination that was removed, or to a handler (`type:name`) that was renamed or removed. Events that
   * reached their other targets become SENT. Events that reached no target become discarded dead letters with the reason
   * `forgotten`. Events that also wait for other destinations keep waiting for those. The history of each event records it.
   * Can be called again safely. Fails while a live relay has the target (`POSTCOMMIT_E_TARGET_IN_USE`).
   *
   * @example
   * const { sent, discarded } = await admin.forget('kafka', { dryRun: true });
   * console.log(`${sent} events would become SENT, ${discarded} would become discarded dead letters`);
   */
  forget(target: string, options: ForgetOptions = {}): Promise<ForgetResult> {
    if (options?.dryRun === true) return withErrorCodes(() => forgetTarget(this.db, this.schema, target, options));
    return this.#bulk('forget', { target }, (db) => forgetTarget(db, this.schema, target, options));
  }

  /**
   * Deletes delivered events that were emitted longer ago than `olderThanMs`, and old rows of `processed_events`. Relays do the
   * same in the background (`maintenance`). Undelivered events and dead letters that are not discarded are kept, whatever
   * their age; `kept` has their number.
   *
   * @example
   * const { events, kept } = await admin.prune({ olderThanMs: 30 * 24 * 3_600_000, dryRun: true });
   * console.log(`${events} would be deleted; ${kept.dead} dead letters would be kept`);
   */
  prune(options: PruneOptions): Promise<PruneResult> {
    const work = (db: Executor) => prune(db, this.schema, options);
    if (options?.dryRun === true) return withErrorCodes(() => work(this.db));
    const { signal: _signal, onProgress: _onProgress, ...target } = options ?? {};
    return withErrorCodes(() => this.trail.record('prune', target, work));
  }

  #change(
    action: string,
    destination: string,
    change: Parameters<typeof changeDestination>[3],
    reason?: string,
  ): Promise<void> {
    const work = (db: Executor) => changeDestination(db, this.schema, destination, change);
    return this.#thenNotify(() => this.trail.record(action, { destination }, work, { reason }));
  }

  #bulk<T>(
    action: string,
    target: object,
    work: (db: Executor) => Promise<T>,
    operator?: { by?: string | undefined; reason?: string | undefined },
  ): Promise<T> {
    return withErrorCodes(() => this.#thenNotify(() => this.trail.record(action, target, work, operator)));
  }

  /** Notifies the relays, even when `work` fails: some chunks may be committed. If a notification is lost, relays poll. */
  async #thenNotify<T>(work: () => Promise<T>): Promise<T> {
    const notify = () => {
      notifyInProcess(this.schema);
      return this.#notify ? notifyRelays(this.db, this.schema).catch(() => {}) : undefined;
    };
    try {
      const result = await work();
      await notify();
      return result;
    } catch (error) {
      void notify(); // Not awaited: an unreachable database would delay the error.
      throw error;
    }
  }
}
