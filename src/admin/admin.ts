import { codedDatabaseError } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import { notifyInProcess, notifyRelays } from '../outbox/emitting/notify.ts';
import type { OutboxCounts } from '../outbox/operating/count.ts';
import { countAll } from '../outbox/operating/count.ts';
import type { EventDetails } from '../outbox/operating/find.ts';
import { find } from '../outbox/operating/find.ts';
import type { EventSummary } from '../outbox/operating/list.ts';
import type { DeadLetter } from '../outbox/operating/list-dead-letters.ts';
import type { DestinationInfo } from '../outbox/operating/list-destinations.ts';
import { listDestinations } from '../outbox/operating/list-destinations.ts';
import type { MaintenanceInfo } from '../outbox/operating/list-maintenance.ts';
import { listMaintenance } from '../outbox/operating/list-maintenance.ts';
import type { MissingTarget } from '../outbox/operating/list-missing-targets.ts';
import { listMissingTargets } from '../outbox/operating/list-missing-targets.ts';
import type { RunningHandler } from '../outbox/operating/list-progress.ts';
import { listProgress } from '../outbox/operating/list-progress.ts';
import type { QueueInfo } from '../outbox/operating/list-queues.ts';
import { listQueues } from '../outbox/operating/list-queues.ts';
import type { RelayInfo } from '../outbox/operating/list-relays.ts';
import { listRelays } from '../outbox/operating/list-relays.ts';
import { pause, resume } from '../outbox/operating/pause.ts';
import type { CancelOptions, CancelResult, ReplayOptions, ReplayResult, UndeliveredResult } from './bulk.ts';
import { cancelEvents, makeEventsDue, replayEvents, requeueAllOrphans, resolveDeadLetters } from './bulk.ts';
import type { BulkOptions, BulkResult } from './chunks.ts';
import type { PauseOptions } from './destinations.ts';
import { changeDestination, checkReason } from './destinations.ts';
import type { Diagnosis, DoctorOptions } from './doctor/doctor.ts';
import { examine } from './doctor/doctor.ts';
import { toReference } from './event-reference.ts';
import type { DeadLetterFilter, DeadLetterTarget, ListFilter, ReplayTarget, UndeliveredTarget } from './filters.ts';
import { checkLimit } from './filters.ts';
import type { ForgetOptions, ForgetResult } from './forgotten-targets.ts';
import { forgetTarget } from './forgotten-targets.ts';
import type { OutboxHealth, OutboxHealthLimits } from './health.ts';
import { checkHealth } from './health.ts';
import { listEvents, listLetters } from './listing.ts';
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
export class OutboxAdmin {
  readonly #db: Executor;
  readonly #schema: string;
  readonly #notify: boolean;
  /** The partitions of the log: list, convert, rotate, drop. */
  readonly partitions: PartitionAdmin;
  /** The schedules of relays: list, pause, resume, trigger, remove. */
  readonly schedules: ScheduleAdmin;

  constructor(options: OutboxAdminOptions) {
    this.#db = options.db;
    this.#schema = options.schema;
    this.#notify = options.notify;
    this.partitions = new PartitionAdmin(options.db, options.schema);
    this.schedules = new ScheduleAdmin(options.db, options.schema);
  }

  /**
   * Finds one event by its id or its seq, with its status, every failed attempt and its error, and every delivery.
   * Returns `undefined` if there is no such event, or retention has deleted it. In a partitioned log several events can
   * have the same id: this returns the one with the lowest seq, and `sameId` has the seqs of the others.
   *
   * @example
   * const event = await admin.find('0198c5a2-7d9e-7cc3-98c4-dc0c0c07398f');
   * for (const { attempt, at, target, error } of event?.failures ?? []) console.log(attempt, at, target, error);
   */
  find(idOrSeq: string): Promise<EventDetails | undefined> {
    return withErrorCodes(() => find(this.#db, this.#schema, toReference(idOrSeq)));
  }

  /**
   * A page of events, newest first by default. Pass `next` as `after` to get the next page; the last page has no `next`.
   * Events that are emitted meanwhile do not shift pages and do not appear twice.
   *
   * @example
   * let after: string | undefined;
   * do {
   *   const page = await admin.list({ type: 'order.created', status: 'FAILED', ...(after && { after }) });
   *   for (const { id, createdAt, lastError } of page.events) console.log(id, createdAt, lastError);
   *   after = page.next;
   * } while (after);
   */
  list(filter: ListFilter = {}): Promise<{ events: EventSummary[]; next?: string }> {
    return withErrorCodes(() => listEvents(this.#db, this.#schema, filter));
  }

  /**
   * A page of dead letters, newest event first, without discarded ones by default. A dead letter whose event was deleted from
   * outbox_events has no id any more: use its seq.
   *
   * @example
   * const { deadLetters } = await admin.deadLetters({ error: 'ECONNREFUSED', limit: 100 });
   * for (const { id, type, reason, attempts, error } of deadLetters) console.log(id, type, reason, attempts, error);
   */
  deadLetters(filter: DeadLetterFilter = {}): Promise<{ deadLetters: DeadLetter[]; next?: string }> {
    return withErrorCodes(() => listLetters(this.#db, this.#schema, filter));
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
    return this.#bulk(() => resolveDeadLetters(this.#db, this.#schema, 'retry', target, options));
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
    return this.#bulk(() => resolveDeadLetters(this.#db, this.#schema, 'discard', target, options));
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
    return this.#bulk(() => replayEvents(this.#db, this.#schema, target, options));
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
    return this.#bulk(() => makeEventsDue(this.#db, this.#schema, target, options));
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
    return this.#bulk(() => cancelEvents(this.#db, this.#schema, target, options));
  }

  /**
   * Queues orphans: events in the log that are not queued, not shelved, not dead letters and not recorded as delivered. Orphans
   * exist only if the trigger `outbox_events_enqueue` was disabled, or rows were deleted from the queue by hand. They are
   * delivered in order per aggregate, but later events of the same aggregate may already have been delivered. Returns how
   * many were queued.
   *
   * @example
   * const { count } = await admin.requeueOrphans();
   */
  requeueOrphans(options: BulkOptions = {}): Promise<BulkResult> {
    return this.#bulk(() => requeueAllOrphans(this.#db, this.#schema, options));
  }

  /**
   * Counts of events by state. Figures up to 100,000 are exact, larger ones are estimates or lower bounds; `exact` tells
   * which.
   *
   * @example
   * const { pending, failed, oldestPendingMs, exact } = await admin.counts();
   * console.log(`${exact.pending ? '' : 'about '}${pending} pending, the oldest for ${oldestPendingMs ?? 0} ms; ${failed} failed`);
   */
  counts(): Promise<OutboxCounts> {
    return withErrorCodes(() => countAll(this.#db, this.#schema));
  }

  /** Compares the outbox with limits, e.g. `health({ oldestPendingMsMax: 60_000, deadLettersMax: 0 })`, for a health check. */
  health(limits: OutboxHealthLimits = {}): Promise<OutboxHealth> {
    return withErrorCodes(() => checkHealth(this.#db, this.#schema, limits));
  }

  /**
   * The running relays, and those that ended in the last days.
   *
   * @example
   * const alive = (await admin.relays()).filter(({ state }) => state === 'alive');
   */
  relays(): Promise<RelayInfo[]> {
    return withErrorCodes(() => listRelays(this.#db, this.#schema));
  }

  /**
   * The handlers in flight that report progress (`ctx.progress()`), longest first: at most `limit`, from 1 to 1,000, default
   * 20. A report is visible within about a second.
   *
   * @example
   * for (const { type, handler, fraction, note } of await admin.progress()) console.log(type, handler, fraction, note);
   */
  progress(options: { limit?: number } = {}): Promise<RunningHandler[]> {
    return withErrorCodes(async () => {
      checkOptionNames(options, 'progress', ['limit']);
      return listProgress(this.#db, this.#schema, checkLimit(options.limit ?? 20));
    });
  }

  /**
   * Targets that queued events are owed to, but no live relay has: handlers that were renamed or removed. These events and
   * later events of their aggregates wait. Events that wait for a destination are in `destinations()`.
   *
   * @example
   * for (const { target, events } of await admin.missingTargets()) console.log(`${events} events wait for ${target}`);
   */
  missingTargets(): Promise<MissingTarget[]> {
    return withErrorCodes(() => listMissingTargets(this.#db, this.#schema));
  }

  /**
   * Every destination that a relay was ever started with, by name: whether it is up, since when it is down or paused and why,
   * and how many events wait for it.
   *
   * @example
   * for (const { name, state, waiting, error } of await admin.destinations()) {
   *   if (state !== 'up') console.log(`${name} is ${state}, ${waiting} events wait for it`, error);
   * }
   */
  destinations(): Promise<DestinationInfo[]> {
    return withErrorCodes(() => listDestinations(this.#db, this.#schema));
  }

  /**
   * Stops sending to a destination, in every relay, until `resume`. Its events stay queued and no attempt is counted.
   * Deliveries in flight may still arrive, and other destinations are not affected. Pausing a paused destination only
   * changes the reason.
   *
   * @example
   * await admin.pause('kafka', { reason: 'cluster upgrade, until 14:00' });
   */
  pause(destination: string, options: PauseOptions = {}): Promise<void> {
    return withErrorCodes(async () => {
      checkOptionNames(options, 'pause', ['reason']);
      const reason = checkReason(options.reason);
      await this.#change(destination, (db, schema, name) => pause(db, schema, name, reason));
    });
  }

  /**
   * Ends a pause: relays send the events that waited, oldest first, at most `drainRateMax` per second. If the destination is
   * down, relays try it now instead of at its next probe.
   *
   * @example
   * await admin.resume('kafka');
   */
  resume(destination: string): Promise<void> {
    return withErrorCodes(() => this.#change(destination, resume));
  }

  /**
   * Every queue that has undelivered events, is worked by a live relay or is paused, by name, with its figures.
   *
   * @example
   * for (const { name, ready, relays } of await admin.queues()) if (ready > 0 && relays === 0) console.log(`no relay works ${name}`);
   */
  queues(): Promise<QueueInfo[]> {
    return withErrorCodes(() => listQueues(this.#db, this.#schema));
  }

  /** Makes relays claim nothing from a queue, until `resumeQueue`. What they have claimed ends normally. */
  pauseQueue(name: string, options: PauseOptions = {}): Promise<void> {
    return withErrorCodes(() => pauseKnownQueue(this.#db, this.#schema, name, options));
  }

  /** Ends the pause of a queue, and notifies relays. */
  resumeQueue(name: string): Promise<void> {
    return this.#bulk(() => resumeKnownQueue(this.#db, this.#schema, name));
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
    return this.#bulk(() => forgetTarget(this.#db, this.#schema, target, options));
  }

  /**
   * Checks the outbox and its PostgreSQL server: settings, indexes, dead rows and what keeps them, backlog, relays, privileges.
   * Returns all findings, worst first, each with its consequence and the command that fixes it. Changes nothing.
   *
   * @example
   * const { worst, findings } = await admin.doctor({ limits: { snapshotMs: 60_000 } });
   * if (worst === 'critical') for (const { what, consequence, fix } of findings) console.log(what, consequence, fix);
   */
  doctor(options: DoctorOptions = {}): Promise<Diagnosis> {
    return withErrorCodes(() => examine(this.#db, this.#schema, options));
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
    return withErrorCodes(() => prune(this.#db, this.#schema, options));
  }

  /**
   * Which relay does maintenance, and the last run of each task.
   *
   * @example
   * for (const { task, error } of (await admin.maintenance()).tasks) if (error) console.log(task, error);
   */
  maintenance(): Promise<MaintenanceInfo> {
    return withErrorCodes(() => listMaintenance(this.#db, this.#schema));
  }

  #change(destination: string, change: Parameters<typeof changeDestination>[3]): Promise<void> {
    return this.#thenNotify(() => changeDestination(this.#db, this.#schema, destination, change));
  }

  #bulk<T>(work: () => Promise<T>): Promise<T> {
    return withErrorCodes(() => this.#thenNotify(work));
  }

  /** Notifies the relays, also when `work` fails: some chunks may be committed. If a notification is lost, relays poll. */
  async #thenNotify<T>(work: () => Promise<T>): Promise<T> {
    const notify = () => {
      notifyInProcess(this.#schema);
      return this.#notify ? notifyRelays(this.#db, this.#schema).catch(() => {}) : undefined;
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

async function withErrorCodes<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw codedDatabaseError(error);
  }
}
