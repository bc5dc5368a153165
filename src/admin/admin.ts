import { codedDatabaseError } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import { notifyInProcess, notifyRelays } from '../outbox/emitting/notify.ts';
import type { OutboxCounts } from '../outbox/operating/count.ts';
import { countAll } from '../outbox/operating/count.ts';
import type { EventStory } from '../outbox/operating/find.ts';
import { find } from '../outbox/operating/find.ts';
import type { EventSummary } from '../outbox/operating/list.ts';
import { list } from '../outbox/operating/list.ts';
import type { DeadLetter } from '../outbox/operating/list-dead-letters.ts';
import { listDeadLetters } from '../outbox/operating/list-dead-letters.ts';
import type { DestinationInfo } from '../outbox/operating/list-destinations.ts';
import { listDestinations } from '../outbox/operating/list-destinations.ts';
import type { MaintenanceInfo } from '../outbox/operating/list-maintenance.ts';
import { listMaintenance } from '../outbox/operating/list-maintenance.ts';
import type { MissingTarget } from '../outbox/operating/list-missing-targets.ts';
import { listMissingTargets } from '../outbox/operating/list-missing-targets.ts';
import type { RelayInfo } from '../outbox/operating/list-relays.ts';
import { listRelays } from '../outbox/operating/list-relays.ts';
import { pause, resume } from '../outbox/operating/pause.ts';
import type { CancelOptions, ReplayOptions, ReplayResult, UndeliveredResult } from './bulk.ts';
import { cancelEvents, makeEventsDue, replayEvents, requeueAllOrphans, resolveDeadLetters } from './bulk.ts';
import type { BulkOptions, BulkResult } from './chunks.ts';
import { fromCursor, toCursor } from './cursor.ts';
import type { PauseOptions } from './destinations.ts';
import { changeDestination, checkReason } from './destinations.ts';
import type { Diagnosis, DoctorOptions } from './doctor/doctor.ts';
import { examine } from './doctor/doctor.ts';
import { toReference } from './event-reference.ts';
import type { DeadLetterFilter, DeadLetterTarget, ListFilter, ReplayTarget, UndeliveredTarget } from './filters.ts';
import { checkDeadLetterFilter, checkListFilter } from './filters.ts';
import type { ForgetOptions, ForgetResult } from './forget.ts';
import { forgetTarget } from './forget.ts';
import { checkOptionNames } from './option-names.ts';
import { PartitionAdmin } from './partitions.ts';
import type { PruneOptions, PruneResult } from './prune.ts';
import { prune } from './prune.ts';
import { seqRange } from './seq-range.ts';

export interface OutboxAdminOptions {
  /** Runs single statements, each in a transaction of its own, on any connection. */
  db: Executor;
  schema: string;
  /** Wake relays of other processes by NOTIFY. */
  notify: boolean;
}

/**
 * What operators do: look events up, list them, decide what becomes of dead letters, pause and resume destinations. Made
 * by `outbox.admin`.
 *
 * Everything stays cheap on an outbox of millions of events: pages are read from where the last one ended, counts are
 * capped, and bulk operations go in chunks of 1,000, each of them whole or not at all. If one fails half-way, or its
 * `signal` ends it, what it had done stays done, and it can be called again.
 */
export class OutboxAdmin {
  readonly #db: Executor;
  readonly #schema: string;
  readonly #notify: boolean;
  /** The partitions of the log: list, convert, rotate, drop. */
  readonly partitions: PartitionAdmin;

  constructor(options: OutboxAdminOptions) {
    this.#db = options.db;
    this.#schema = options.schema;
    this.#notify = options.notify;
    this.partitions = new PartitionAdmin(options.db, options.schema);
  }

  /**
   * The whole story of one event, by its id or its seq: what it is, where it stands, every failed attempt with its
   * error, every delivery. `undefined` when there is no such event, or no longer. In a partitioned log several events can
   * have one id: this is the one with the lowest seq, and `sameId` has the seqs of the others.
   *
   * @example
   * const story = await admin.find('0198c5a2-7d9e-7cc3-98c4-dc0c0c07398f');
   * for (const { attempt, at, target, error } of story?.failures ?? []) console.log(attempt, at, target, error);
   */
  find(idOrSeq: string): Promise<EventStory | undefined> {
    return coded(() => find(this.#db, this.#schema, toReference(idOrSeq)));
  }

  /**
   * A page of events, newest first unless asked otherwise. Hand `next` in as `after` for the page behind it; there is
   * none when `next` is absent. Events emitted meanwhile neither move a page nor appear twice.
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
    return coded(async () => {
      const { limit, ...request } = checkListFilter(filter);
      const kind = request.order === 'newest' ? 'events-newest' : 'events-oldest';
      const after = fromCursor(kind, filter.after);
      const range = await seqRange(this.#db, this.#schema, request.events);
      // One more than asked for tells whether there is another page.
      const found = await list(this.#db, this.#schema, { ...request, ...range, after, limit: limit + 1 });
      const events = found.slice(0, limit);
      return { events, ...nextAfter(found, limit, (seq) => toCursor(kind, seq)) };
    });
  }

  /**
   * A page of dead letters, newest event first; without those that were discarded, unless asked for.
   * One whose event was deleted from outbox_events has no id any more: name it by its seq.
   *
   * @example
   * const { deadLetters } = await admin.deadLetters({ error: 'ECONNREFUSED', limit: 100 });
   * for (const { id, type, reason, attempts, error } of deadLetters) console.log(id, type, reason, attempts, error);
   */
  deadLetters(filter: DeadLetterFilter = {}): Promise<{ deadLetters: DeadLetter[]; next?: string }> {
    return coded(async () => {
      const { letters, limit } = checkDeadLetterFilter(filter);
      const after = fromCursor('dead-letters', filter.after);
      const found = await listDeadLetters(this.#db, this.#schema, { letters, after, limit: limit + 1 });
      const deadLetters = found.slice(0, limit);
      return { deadLetters, ...nextAfter(found, limit, (seq) => toCursor('dead-letters', seq)) };
    });
  }

  /**
   * Puts dead letters back into the queue: due at once, with all of their attempts ahead of them. Targets that already
   * have the event are not called again, and the errors so far remain part of its story. A key that one of them held
   * goes on behind it, in order. Discarded ones are taken only when named by id or asked for (`includeDiscarded`).
   *
   * Brokers that deduplicate get the deduplication id of the earlier attempts, and drop an event that one of these stored
   * although its answer was lost. If that copy was deleted at the broker, `replay` the event after it is SENT.
   *
   * Answers how many there were. Ids that are not dead letters do not count; an empty filter is refused.
   *
   * @example
   * await admin.retry({ ids: ['0198c5a2-7d9e-7cc3-98c4-dc0c0c07398f'] });
   * const { count } = await admin.retry({ type: 'order.created', error: 'ECONNREFUSED' });
   */
  retry(target: DeadLetterTarget, options: BulkOptions = {}): Promise<BulkResult> {
    return this.#bulk(() => resolveDeadLetters(this.#db, this.#schema, 'retry', target, options));
  }

  /**
   * Gives dead letters up: they are not delivered any more, and a key that one of them held goes on without it. The
   * events stay FAILED and their story can still be told.
   *
   * @example
   * const weekAgo = new Date(Date.now() - 7 * 24 * 3_600_000);
   * const { count } = await admin.discard({ reason: 'rejected', to: weekAgo });
   */
  discard(target: DeadLetterTarget, options: BulkOptions = {}): Promise<BulkResult> {
    return this.#bulk(() => resolveDeadLetters(this.#db, this.#schema, 'discard', target, options));
  }

  /**
   * Delivers events again that were delivered before: with the same id, to all of their targets, in order for each
   * aggregate. Brokers that deduplicate store them again, because each replay has deduplication ids of its own. Consumers
   * that deduplicate by event id will not act on them twice. Events that are in the queue, wait for a destination or are
   * dead are left alone. `from` and `to` are about when an event was emitted. To go on with one
   * that was interrupted, hand its `next` in as `after`.
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
   * Cancels undelivered events, in the queue or on the shelf: they are never delivered, and their aggregates go on without
   * them. Each becomes a discarded dead letter with the reason `cancelled` and the database role that cancelled it; `retry`
   * by id puts it back into the queue. Events that a live relay has claimed are not changed and counted as `inFlight`:
   * call it again if there are any. For dead letters use `discard`.
   *
   * @example
   * const { count, inFlight } = await admin.cancel({ aggregate: ['order', '42'] }, { reason: 'test data' });
   */
  cancel(target: UndeliveredTarget, options: CancelOptions = {}): Promise<UndeliveredResult> {
    return this.#bulk(() => cancelEvents(this.#db, this.#schema, target, options));
  }

  /**
   * Queues events that are in the log and nowhere else: neither queued, shelved, dead nor recorded as delivered. There are
   * none unless the trigger `outbox_events_enqueue` was disabled, or rows were deleted from the queue by hand. They are
   * delivered in order per aggregate, but later events of the same aggregate may already have been delivered. Returns how many.
   *
   * @example
   * const { count } = await admin.requeueOrphans();
   */
  requeueOrphans(options: BulkOptions = {}): Promise<BulkResult> {
    return this.#bulk(() => requeueAllOrphans(this.#db, this.#schema, options));
  }

  /**
   * How much of what there is. Figures up to 100,000 are counted, larger ones are estimates or lower bounds; `exact` says
   * which is which.
   *
   * @example
   * const { pending, failed, oldestPendingMs, exact } = await admin.counts();
   * console.log(`${exact.pending ? '' : 'about '}${pending} pending, the oldest for ${oldestPendingMs ?? 0} ms; ${failed} failed`);
   */
  counts(): Promise<OutboxCounts> {
    return coded(() => countAll(this.#db, this.#schema));
  }

  /**
   * The relays that run, and those that ended in the last days.
   *
   * @example
   * const alive = (await admin.relays()).filter(({ state }) => state === 'alive');
   */
  relays(): Promise<RelayInfo[]> {
    return coded(() => listRelays(this.#db, this.#schema));
  }

  /**
   * Targets that events in the queue are owed to and that no living relay has: handlers that were renamed or removed. These
   * events wait, and their aggregates with them. What waits for a destination is in `destinations()`.
   *
   * @example
   * for (const { target, events } of await admin.missingTargets()) console.log(`${events} events wait for ${target}`);
   */
  missingTargets(): Promise<MissingTarget[]> {
    return coded(() => listMissingTargets(this.#db, this.#schema));
  }

  /**
   * Every destination that a relay was ever started with, by name: whether it is up, since when it is away and why, and
   * how many events wait for it.
   *
   * @example
   * for (const { name, state, waiting, error } of await admin.destinations()) {
   *   if (state !== 'up') console.log(`${name} is ${state}, ${waiting} events wait for it`, error);
   * }
   */
  destinations(): Promise<DestinationInfo[]> {
    return coded(() => listDestinations(this.#db, this.#schema));
  }

  /**
   * Stops sending to a destination, in every relay, until `resume`. Its events wait and lose no attempt; what is under
   * way may still arrive, and other destinations go on. To pause it again changes its reason only.
   *
   * @example
   * await admin.pause('kafka', { reason: 'cluster upgrade, until 14:00' });
   */
  pause(destination: string, options: PauseOptions = {}): Promise<void> {
    return coded(async () => {
      checkOptionNames(options, 'pause', ['reason']);
      const reason = checkReason(options.reason);
      await this.#change(destination, (db, schema, name) => pause(db, schema, name, reason));
    });
  }

  /**
   * Ends a pause: the events that waited are sent, oldest first, at no more than the relays' `drainRateMax`. A destination
   * that is down is tried at once instead of at its next probe.
   *
   * @example
   * await admin.resume('kafka');
   */
  resume(destination: string): Promise<void> {
    return coded(() => this.#change(destination, resume));
  }

  /**
   * Gives up what is owed to a destination that is gone for good, or to a handler (`type:name`) that was renamed or removed.
   * Events that have reached their other targets become SENT, recorded without this one; those that have reached none are
   * given up, as discarded dead letters with the reason `forgotten`; those that wait for other destinations too go on
   * waiting for these. The story of each event tells of it. In chunks, and to call it again is harmless. Refused while a
   * living relay has the target (`POSTCOMMIT_E_TARGET_IN_USE`).
   *
   * @example
   * const { sent, discarded } = await admin.forget('kafka', { dryRun: true });
   * console.log(`${sent} events would be SENT without kafka, ${discarded} would be given up`);
   */
  forget(target: string, options: ForgetOptions = {}): Promise<ForgetResult> {
    return this.#bulk(() => forgetTarget(this.#db, this.#schema, target, options));
  }

  /**
   * Examines the outbox and its PostgreSQL: settings, indexes, dead rows and who keeps them, backlog, relays, rights.
   * Answers every finding, worst first, with its consequence and the command that fixes it. Changes nothing.
   *
   * @example
   * const { worst, findings } = await admin.doctor({ limits: { snapshotMs: 60_000 } });
   * if (worst === 'critical') for (const { what, consequence, fix } of findings) console.log(what, consequence, fix);
   */
  doctor(options: DoctorOptions = {}): Promise<Diagnosis> {
    return coded(() => examine(this.#db, this.#schema, options));
  }

  /**
   * Removes events that were emitted longer ago than `olderThanMs`, and what is remembered of processed ones, now and to
   * the end. Relays do the same by themselves (`maintenance`), bit by bit. What is not delivered, or is a dead letter
   * that nobody has discarded, stays whatever its age; `kept` tells how many.
   *
   * @example
   * const { events, kept } = await admin.prune({ olderThanMs: 30 * 24 * 3_600_000, dryRun: true });
   * console.log(`${events} would go; ${kept.dead} dead letters would stay`);
   */
  prune(options: PruneOptions): Promise<PruneResult> {
    return coded(() => prune(this.#db, this.#schema, options));
  }

  /**
   * Which relay does maintenance for all, and what each of its tasks did last.
   *
   * @example
   * for (const { task, error } of (await admin.maintenance()).tasks) if (error) console.log(task, error);
   */
  maintenance(): Promise<MaintenanceInfo> {
    return coded(() => listMaintenance(this.#db, this.#schema));
  }

  #change(destination: string, change: Parameters<typeof changeDestination>[3]): Promise<void> {
    return this.#thenRing(() => changeDestination(this.#db, this.#schema, destination, change));
  }

  #bulk<T>(work: () => Promise<T>): Promise<T> {
    return coded(() => this.#thenRing(work));
  }

  /** Rings for the relays, also when `work` fails: some of it may be done. A ring that is lost is made up by polling. */
  async #thenRing<T>(work: () => Promise<T>): Promise<T> {
    const rung = () => {
      notifyInProcess(this.#schema);
      return this.#notify ? notifyRelays(this.#db, this.#schema).catch(() => {}) : undefined;
    };
    try {
      const result = await work();
      await rung();
      return result;
    } catch (error) {
      void rung(); // Not awaited: a database that cannot be reached would be waited for twice.
      throw error;
    }
  }
}

function nextAfter(
  found: readonly { seq: string }[],
  limit: number,
  cursor: (seq: string) => string,
): { next?: string } {
  const last = found.length > limit ? found[limit - 1] : undefined;
  return last ? { next: cursor(last.seq) } : {};
}

async function coded<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw codedDatabaseError(error);
  }
}
