import type { Executor } from '../database/executor.ts';
import type { KnownUnqueued, OutboxCounts } from '../outbox/operating/count.ts';
import { countAll } from '../outbox/operating/count.ts';
import type { DeadLetterCount } from '../outbox/operating/count-dead-letters.ts';
import type { EventDetails } from '../outbox/operating/find.ts';
import { find } from '../outbox/operating/find.ts';
import type { DeadLetterGroup } from '../outbox/operating/group-dead-letters.ts';
import { groupDeadLetters } from '../outbox/operating/group-dead-letters.ts';
import type { EventSummary } from '../outbox/operating/list.ts';
import type { AuditEntry } from '../outbox/operating/list-audit.ts';
import type { BlockedAggregate } from '../outbox/operating/list-blocked.ts';
import { listBlocked } from '../outbox/operating/list-blocked.ts';
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
import type { UnhandledType } from '../outbox/operating/list-unhandled-types.ts';
import { listUnhandledTypes } from '../outbox/operating/list-unhandled-types.ts';
import type { LatencySample } from '../outbox/operating/sample-latency.ts';
import { sampleLatency } from '../outbox/operating/sample-latency.ts';
import type { AuditFilter, AuditTrail } from './audit.ts';
import type { Diagnosis, DoctorOptions } from './doctor/doctor.ts';
import { examine } from './doctor/doctor.ts';
import { withErrorCodes } from './error-codes.ts';
import { toReference } from './event-reference.ts';
import type { DeadLetterFilter, DeadLetterTarget, ListFilter, SearchFilter } from './filters.ts';
import { checkLimit } from './filters.ts';
import type { OutboxHealth, OutboxHealthLimits } from './health.ts';
import { checkHealth } from './health.ts';
import { countMatchingLetters, listEvents, listLetters, searchEvents } from './listing.ts';
import { checkOptionNames } from './option-names.ts';

export interface CountOptions {
  /** Unqueued events of an earlier call, for calls every few seconds: the log is not searched for them again. Default: it is searched. */
  knownUnqueued?: KnownUnqueued;
}

/** What operators can read. All methods stay fast with millions of events, and none changes anything. */
export class OutboxInspector {
  protected readonly db: Executor;
  protected readonly schema: string;
  protected readonly trail: AuditTrail;

  constructor(db: Executor, schema: string, trail: AuditTrail) {
    this.db = db;
    this.schema = schema;
    this.trail = trail;
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
    return withErrorCodes(() => find(this.db, this.schema, toReference(idOrSeq)));
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
    return withErrorCodes(() => listEvents(this.db, this.schema, filter));
  }

  /**
   * A page of events, also by what no index covers: a header, or a part of the text of any failed attempt's error. Each call
   * reads at most 10,000 rows, so a page may be short or empty although `next` says that there is more to search.
   *
   * @example
   * const { events, next } = await admin.search({ header: ['tenant', 'acme'], type: 'order.created' });
   */
  search(filter: SearchFilter = {}): Promise<{ events: EventSummary[]; next?: string }> {
    return withErrorCodes(() => searchEvents(this.db, this.schema, filter));
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
    return withErrorCodes(() => listLetters(this.db, this.schema, filter));
  }

  /**
   * The newest 10,000 dead letters that are not discarded, grouped by their error, apart from numbers and ids in it: at most 100
   * groups, largest first. `retry` and `discard` take the `group` as `errorGroup`.
   *
   * @example
   * for (const { group, count } of await admin.deadLetterGroups()) console.log(count, group);
   */
  deadLetterGroups(): Promise<DeadLetterGroup[]> {
    return withErrorCodes(() => groupDeadLetters(this.db, this.schema, { lettersMax: 10_000, groupsMax: 100 }));
  }

  /**
   * How many dead letters `retry` or `discard` would change, counted up to 100,000. Changes nothing.
   *
   * @example
   * const { count, blocking } = await admin.countDeadLetters({ error: 'ECONNREFUSED' });
   */
  countDeadLetters(target: DeadLetterTarget): Promise<DeadLetterCount> {
    return withErrorCodes(() => countMatchingLetters(this.db, this.schema, target));
  }

  /**
   * Aggregates (or keys) whose events wait until a dead letter is retried or discarded, longest first: at most `limit`, from 1 to
   * 1,000, default 50.
   *
   * @example
   * for (const { key, waiting, error } of await admin.blockedAggregates()) console.log(key, waiting, error);
   */
  blockedAggregates(options: { limit?: number } = {}): Promise<BlockedAggregate[]> {
    return withErrorCodes(async () => {
      checkOptionNames(options, 'blockedAggregates', ['limit']);
      return listBlocked(this.db, this.schema, checkLimit(options.limit));
    });
  }

  /**
   * Counts of events by state. Figures up to 100,000 are exact, larger ones are estimates or lower bounds; `exact` tells
   * which.
   *
   * @example
   * const { pending, failed, oldestPendingMs, exact } = await admin.counts();
   * console.log(`${exact.pending ? '' : 'about '}${pending} pending, the oldest for ${oldestPendingMs ?? 0} ms; ${failed} failed`);
   */
  counts(options: CountOptions = {}): Promise<OutboxCounts> {
    return withErrorCodes(() => {
      checkOptionNames(options, 'counts', ['knownUnqueued']);
      return countAll(this.db, this.schema, options.knownUnqueued);
    });
  }

  /**
   * How long the newest events took from their emit, or from the time that they were delayed to, until they were delivered. Looks at
   * the newest 200 events of the last minute.
   *
   * @example
   * const { p50Ms, p95Ms } = await admin.latency();
   */
  latency(): Promise<LatencySample> {
    return withErrorCodes(() => sampleLatency(this.db, this.schema, { eventsMax: 200, withinMs: 60_000 }));
  }

  /**
   * What operators have done, newest first: who, when, what, why and how many events it changed. Rows are kept as long as events,
   * and at least 90 days.
   *
   * @example
   * for (const { by, action, changed, reason } of (await admin.audit()).operations) console.log(by, action, changed, reason);
   */
  audit(filter: AuditFilter = {}): Promise<{ operations: AuditEntry[]; next?: string }> {
    return withErrorCodes(() => this.trail.list(filter));
  }

  /** Compares the outbox with limits, e.g. `health({ oldestPendingMsMax: 60_000, deadLettersMax: 0 })`, for a health check. */
  health(limits: OutboxHealthLimits = {}): Promise<OutboxHealth> {
    return withErrorCodes(() => checkHealth(this.db, this.schema, limits));
  }

  /**
   * The running relays, and those that ended in the last days.
   *
   * @example
   * const alive = (await admin.relays()).filter(({ state }) => state === 'alive');
   */
  relays(): Promise<RelayInfo[]> {
    return withErrorCodes(() => listRelays(this.db, this.schema));
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
      return listProgress(this.db, this.schema, checkLimit(options.limit ?? 20));
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
    return withErrorCodes(() => listMissingTargets(this.db, this.schema));
  }

  /**
   * Types of queued events whose last attempt found neither a handler nor a route. They are retried until their last attempt, and
   * are dead letters then. Looks at the first 10,000 events of the queue.
   *
   * @example
   * for (const { type, events } of await admin.unhandledTypes()) console.log(`${events} events of ${type} have no handler`);
   */
  unhandledTypes(): Promise<UnhandledType[]> {
    return withErrorCodes(() => listUnhandledTypes(this.db, this.schema));
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
    return withErrorCodes(() => listDestinations(this.db, this.schema));
  }

  /**
   * `default`, and every other queue that has undelivered events, is worked by a live relay or is paused, by name, with its figures.
   *
   * @example
   * for (const { name, ready, relays } of await admin.queues()) if (ready > 0 && relays === 0) console.log(`no relay works ${name}`);
   */
  queues(): Promise<QueueInfo[]> {
    return withErrorCodes(() => listQueues(this.db, this.schema));
  }

  /**
   * Checks the outbox and its PostgreSQL server: settings, indexes, dead rows and what keeps them, backlog, relays, privileges.
   * Returns all findings, worst first, each with its consequence and the command that fixes it. Changes nothing.
   *
   * @example
   * const { worst, findings } = await admin.doctor({ limits: { snapshotMsMax: 60_000 } });
   * if (worst === 'critical') for (const { what, consequence, fix } of findings) console.log(what, consequence, fix);
   */
  doctor(options: DoctorOptions = {}): Promise<Diagnosis> {
    return withErrorCodes(() => examine(this.db, this.schema, options));
  }

  /**
   * Which relay does maintenance, and the last run of each task.
   *
   * @example
   * for (const { task, error } of (await admin.maintenance()).tasks) if (error) console.log(task, error);
   */
  maintenance(): Promise<MaintenanceInfo> {
    return withErrorCodes(() => listMaintenance(this.db, this.schema));
  }
}
