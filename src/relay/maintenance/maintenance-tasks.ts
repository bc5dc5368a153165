import type { Executor } from '../../database/executor.ts';
import { analyze } from '../../outbox/maintaining/analyze.ts';
import { dropExpired } from '../../outbox/maintaining/drop-partition.ts';
import { pruneAudit } from '../../outbox/maintaining/prune-audit.ts';
import type { PrunedChunk } from '../../outbox/maintaining/prune-events.ts';
import { pruneEvents } from '../../outbox/maintaining/prune-events.ts';
import { firstTime, pruneProcessed } from '../../outbox/maintaining/prune-processed.ts';
import { pruneRelays } from '../../outbox/maintaining/prune-relays.ts';
import type { LastRun, TaskRun } from '../../outbox/maintaining/record-run.ts';
import { rotate } from '../../outbox/maintaining/rotate.ts';
import { sweepProgress } from '../../outbox/maintaining/sweep-progress.ts';
import type { MaintenanceTask, ResolvedMaintenance } from './maintenance-options.ts';
import { chunkRowsMax, cycleMs } from './tuning.ts';

/** The input of a task. */
export interface TaskContext {
  db: Executor;
  schema: string;
  options: ResolvedMaintenance;
  /** Its last run, whichever relay led. */
  last: LastRun | undefined;
  /** Called between two chunks: whether there is time left, and this relay still leads. Pauses first, to let others work. */
  mayGoOn: () => Promise<boolean>;
}

export interface TaskResult extends Pick<TaskRun, 'changed' | 'note' | 'cursor' | 'newCycle'> {
  /** Whether it stopped because its time was up. */
  more?: boolean;
}

/**
 * Each task is safe if two relays run it at once, as when a deposed leader has not noticed: it acts on the current state of
 * the database, and finds nothing left to do where the other has finished. Its record, the cursor included, is fenced by the
 * leader's epoch.
 */
export const runTask: Record<MaintenanceTask, (context: TaskContext) => Promise<TaskResult>> = {
  async rotate({ db, schema }) {
    const { opened, created, missing, waiting, error } = await rotate(db, schema);
    // As an error: until it is fixed, all events go into one partition, and none can be dropped.
    if (error) throw new Error(`cannot create a partition, events go into the current one: ${error.message}`);
    const notes = [
      missing !== undefined && `partition ${missing} is missing: events go into the default one`,
      waiting && 'the next partition opens when a long transaction has ended',
    ];
    const note = notes.filter(Boolean).join('; ') || undefined;
    return { changed: created.length + (opened === undefined ? 0 : 1), note };
  },
  async drop({ db, schema, options }) {
    const { dropped, kept, more } = await dropExpired(db, schema, { keepMs: options.keepEventsMs });
    const reasons = kept.slice(0, 3).map(({ number, reason }) => `partition ${number} stays: ${reason}`);
    if (kept.length > 3) reasons.push(`${kept.length - 3} more stay`);
    return { changed: dropped.length, note: reasons.join('; ') || undefined, more };
  },
  prune,
  processed,
  async relays({ db, schema, options }) {
    const swept = await sweepProgress(db, schema);
    const pruned = await pruneRelays(db, schema, chunkRowsMax);
    const audit = await pruneAudit(db, schema, { keepMs: options.keepEventsMs, rowsMax: chunkRowsMax });
    return { changed: swept + pruned + audit, more: pruned === chunkRowsMax || audit === chunkRowsMax };
  },
  async analyze({ db, schema }) {
    const { analyzed, forbidden } = await analyze(db, schema);
    const note =
      forbidden.length === 0
        ? undefined
        : `the statistics of ${forbidden.join(' and ')} are stale, and this role may not ANALYZE: grant it MAINTAIN (PostgreSQL 17), or turn autovacuum on`;
    return { changed: analyzed.length, note };
  },
};

/**
 * Continues where the last run ended, up to the first events that are too young. Events that had to stay are behind the
 * cursor, and not examined by every run: the next cycle starts only when the end was reached and an hour has passed. By then
 * only those events are left, so that is cheap.
 */
async function prune({ db, schema, options, last, mayGoOn }: TaskContext): Promise<TaskResult> {
  if (options.keepEventsMs === Number.POSITIVE_INFINITY) return { changed: 0 };
  const kept = { queued: 0, shelved: 0, dead: 0, unqueued: 0 };
  let changed = 0;
  let cursor = last?.cursor ?? '0';
  let finished = false;
  do {
    const chunk = await pruneEvents(db, schema, { after: cursor, keepMs: options.keepEventsMs, rowsMax: chunkRowsMax });
    changed += chunk.pruned;
    kept.queued += chunk.queued;
    kept.shelved += chunk.shelved;
    kept.dead += chunk.dead;
    kept.unqueued += chunk.unqueued;
    cursor = chunk.reached;
    finished = chunk.finished;
  } while (!finished && (await mayGoOn()));
  const cycleAgoMs = last?.cycleAgoMs ?? 0;
  const newCycle = finished && (cycleAgoMs >= cycleMs || cycleAgoMs < 0); // In the future: the clock was set back.
  return { changed, note: keptText(kept), cursor: newCycle ? '0' : cursor, newCycle, more: !finished };
}

function keptText(kept: Pick<PrunedChunk, 'queued' | 'shelved' | 'dead' | 'unqueued'>): string | undefined {
  const { queued, shelved, dead, unqueued } = kept;
  if (queued + shelved + dead + unqueued === 0) return undefined;
  const text = `old enough, and still needed: ${queued} undelivered, ${shelved} on the shelf, ${dead} dead letters`;
  return unqueued === 0 ? text : `${text}, ${unqueued} unqueued (npx postcommit requeue-unqueued)`;
}

async function processed({ db, schema, options, mayGoOn }: TaskContext): Promise<TaskResult> {
  const { keepProcessedMs: keepMs } = options;
  if (keepMs === Number.POSITIVE_INFINITY) return { changed: 0 };
  let changed = 0;
  let after = firstTime;
  let more = true;
  do {
    const { count, reached } = await pruneProcessed(db, schema, { after, keepMs, rowsMax: chunkRowsMax });
    changed += count;
    after = reached;
    more = count === chunkRowsMax;
  } while (more && (await mayGoOn()));
  return { changed, more };
}
