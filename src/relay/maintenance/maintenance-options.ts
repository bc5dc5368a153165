import { PostcommitError } from '../../errors.ts';
import { shown } from '../../format.ts';
import { checkKeepMs, keepMsDefault } from '../../retention.ts';
import { unknownOption } from '../../suggest.ts';

/** The tasks of maintenance, in the order in which a turn runs them. */
export const maintenanceTasks = ['rotate', 'drop', 'prune', 'processed', 'relays', 'analyze'] as const;

/**
 * What one relay, the leader, does for all:
 * - `rotate`: creates partitions ahead and opens the next one (nothing to do when the log is not partitioned);
 * - `drop`: drops partitions of which every event is older than `keepEventsMs`;
 * - `prune`: removes such events from a log that is not partitioned, and from the default partition;
 * - `processed`: removes records of events that consumers processed longer than `keepProcessedMs` ago;
 * - `relays`: removes records of relays that ended over a day ago, except the last thousand, and old rows of the audit table;
 * - `analyze`: refreshes the statistics of the queue when autovacuum does not.
 */
export type MaintenanceTask = (typeof maintenanceTasks)[number];

export interface MaintenanceOptions {
  /**
   * How long events are kept, from when they were emitted. An undelivered event, or a dead letter that was not discarded, is
   * kept whatever its age. Longer: more can be examined and replayed, and the log takes more room. 0: until they are
   * delivered. `Infinity`: forever. Default 2,592,000,000 (30 days).
   */
  keepEventsMs?: number;
  /**
   * How long `processed_events` remembers. An event that comes again after that is processed again, so it should be
   * longer than any redelivery or replay takes. `Infinity`: forever. Default 2,592,000,000 (30 days).
   */
  keepProcessedMs?: number;
  /** The pause between two turns of the leader. A turn that left work undone is continued sooner. Default 60,000. */
  intervalMs?: number;
  /** Tasks that this relay skips when it leads. Use the same for all relays, or it depends on which one leads. */
  skip?: readonly MaintenanceTask[];
}

export type ResolvedMaintenance = Required<Omit<MaintenanceOptions, 'skip'>> & { skip: ReadonlySet<MaintenanceTask> };

const dayMs = 86_400_000;

/** Fills in the defaults. `undefined`: this relay never leads. */
export function resolveMaintenance(given: unknown): ResolvedMaintenance | undefined {
  if (given === false) return undefined;
  if (given !== undefined && (typeof given !== 'object' || given === null || Array.isArray(given))) {
    throw bad(`maintenance must be false or an object of options, e.g. { keepEventsMs: ${7 * dayMs} }.`);
  }
  const {
    keepEventsMs = keepMsDefault,
    keepProcessedMs = keepMsDefault,
    intervalMs = 60_000,
    skip = [],
  } = (given ?? {}) as MaintenanceOptions;
  const unknown = unknownOption(given ?? {}, ['keepEventsMs', 'keepProcessedMs', 'intervalMs', 'skip'], 'maintenance');
  if (unknown !== undefined) throw bad(unknown);
  return {
    keepEventsMs: checkKeepMs('maintenance.keepEventsMs', keepEventsMs),
    keepProcessedMs: checkKeepMs('maintenance.keepProcessedMs', keepProcessedMs),
    intervalMs: checkIntervalMs(intervalMs),
    skip: checkSkip(skip),
  };
}

/** The age at which a task removes rows; `undefined` for the other tasks. */
export function keepMsOf(task: MaintenanceTask, options: ResolvedMaintenance): number | undefined {
  if (task === 'processed') return options.keepProcessedMs;
  return task === 'prune' || task === 'drop' ? options.keepEventsMs : undefined;
}

function checkIntervalMs(value: number): number {
  if (Number.isInteger(value) && value >= 100 && value <= dayMs) return value;
  throw bad(`maintenance.intervalMs must be a whole number from 100 to ${dayMs}. Got ${shown(value)}.`);
}

function checkSkip(skip: unknown): Set<MaintenanceTask> {
  if (!Array.isArray(skip)) throw bad(`maintenance.skip must be a list of tasks: ${maintenanceTasks.join(', ')}.`);
  const wrong = skip.find((task) => !maintenanceTasks.includes(task));
  if (wrong !== undefined || skip.includes(undefined)) {
    throw bad(`maintenance.skip has ${JSON.stringify(wrong)}. Valid tasks: ${maintenanceTasks.join(', ')}.`);
  }
  return new Set(skip);
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
