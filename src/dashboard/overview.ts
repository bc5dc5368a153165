import type { OutboxAdmin } from '../admin/admin.ts';
import type { RelayDifferences } from '../admin/relay-differences.ts';
import { relayDifferences } from '../admin/relay-differences.ts';
import type { KnownUnqueued, OutboxCounts } from '../outbox/operating/count.ts';
import type { BlockedAggregate } from '../outbox/operating/list-blocked.ts';
import type { DestinationInfo } from '../outbox/operating/list-destinations.ts';
import type { MaintenanceInfo } from '../outbox/operating/list-maintenance.ts';
import type { MissingTarget } from '../outbox/operating/list-missing-targets.ts';
import type { RunningHandler } from '../outbox/operating/list-progress.ts';
import type { QueueInfo } from '../outbox/operating/list-queues.ts';
import type { RelayInfo } from '../outbox/operating/list-relays.ts';
import type { ScheduleInfo } from '../outbox/operating/list-schedules.ts';
import type { Health } from './health.ts';
import { judge } from './health.ts';
import type { RatePoint } from './rates.ts';
import { RateHistory } from './rates.ts';

/** What the first page shows: the facts of `postcommit status --json`, a judgement, and a point of the charts. */
export interface Overview {
  at: Date;
  health: Health;
  counts: OutboxCounts;
  latency: { p50Ms: number | null; p95Ms: number | null };
  relays: RelayInfo[];
  differences: RelayDifferences;
  queues: QueueInfo[];
  destinations: DestinationInfo[];
  missingTargets: MissingTarget[];
  progress: RunningHandler[];
  blocked: BlockedAggregate[];
  maintenance: MaintenanceInfo;
  schedules: ScheduleInfo[];
  /** The last quarter of an hour, as far as this process has seen it. */
  history: readonly RatePoint[];
}

const blockedShown = 20;
const unqueuedMs = 60_000;

/** Reads the state of one outbox. Keeps a short history for the charts. */
export class OverviewReader {
  readonly #admin: OutboxAdmin;
  readonly #rates = new RateHistory();
  #unqueued: { known: KnownUnqueued; at: number } | undefined;

  constructor(admin: OutboxAdmin) {
    this.#admin = admin;
  }

  async read(): Promise<Overview> {
    const admin = this.#admin;
    // One after the other: the dashboard must not take several connections of an application's pool at once.
    const counts = await this.#count();
    const latency = await admin.latency();
    const relays = (await admin.relays()).filter(({ state }) => state === 'alive' || state === 'overdue');
    const facts = {
      relays,
      queues: await admin.queues(),
      destinations: await admin.destinations(),
      missingTargets: await admin.missingTargets(),
      progress: await admin.progress(),
      blocked: await admin.blockedAggregates({ limit: blockedShown }),
      maintenance: await admin.maintenance(),
      schedules: await admin.schedules.list(),
    };
    this.#rates.add({ ...latency, relays, backlog: counts.pending + counts.processing });
    return {
      at: new Date(latency.at),
      health: judge({ counts, ...facts }),
      counts,
      latency: { p50Ms: latency.p50Ms, p95Ms: latency.p95Ms },
      differences: relayDifferences(relays),
      ...facts,
      history: this.#rates.points,
    };
  }

  /** Unqueued events are rare, and the search for them takes as long as the rest of the overview: once a minute is enough. */
  async #count(): Promise<OutboxCounts> {
    const before = this.#unqueued;
    const isFresh = before !== undefined && performance.now() - before.at < unqueuedMs;
    const counts = await this.#admin.counts(isFresh ? { knownUnqueued: before.known } : {});
    if (!isFresh) {
      this.#unqueued = { known: { unqueued: counts.unqueued, exact: counts.exact.unqueued }, at: performance.now() };
    }
    return counts;
  }
}
