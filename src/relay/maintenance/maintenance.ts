import { setTimeout as sleep } from 'node:timers/promises';
import type { ServerList } from '../../database/connection-string.ts';
import { codedDatabaseError } from '../../database/database-error.ts';
import type { Executor } from '../../database/executor.ts';
import type { LastRun, TaskRun } from '../../outbox/maintaining/record-run.ts';
import { readRuns, recordRun } from '../../outbox/maintaining/record-run.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import type { Service } from '../service/service.ts';
import type { Lifecycle } from '../telemetry/lifecycle.ts';
import { DutyConnection } from './duty-connection.ts';
import { endDuty } from './end-duty.ts';
import type { OwnedDuty } from './leader.ts';
import { Leader } from './leader.ts';
import type { MaintenanceTask, ResolvedMaintenance } from './maintenance-options.ts';
import { keepMsOf, maintenanceTasks } from './maintenance-options.ts';
import type { TaskResult } from './maintenance-tasks.ts';
import { runTask } from './maintenance-tasks.ts';
import { chunkPauseMs, goOnMs, taskMs, taskMsMax, taskMsOnce } from './tuning.ts';

export interface MaintenanceServiceOptions {
  schema: string;
  relay: string;
  servers: ServerList;
  options: ResolvedMaintenance;
  /** Used only to renew the duty. */
  control: Executor;
  leaseMs: number;
  token: () => string;
  lifecycle: Lifecycle;
  logger: Logger;
}

/** What a task of maintenance did when this relay last ran it. */
export interface MaintenanceRun extends Pick<TaskRun, 'durationMs' | 'changed' | 'note' | 'error'> {
  task: MaintenanceTask;
}

/**
 * Maintenance: one relay does it for all (`leader.ts`), turn by turn. A turn runs the tasks that are due, one after the
 * other, each in bounded chunks for a bounded time, on a connection that is opened for the turn: claims, results and
 * heartbeats never wait for it, and relays that do not lead have no such connection.
 *
 * A failed task does not keep the others from running. Each run is recorded in `outbox_maintenance`, emitted as the lifecycle
 * events `maintained` and `maintenanceFailed`, and part of `relay.stats()`. The database's clock and these records decide
 * which tasks are due, so a change of leader repeats nothing.
 */
export class Maintenance implements Service {
  readonly #options: MaintenanceServiceOptions;
  readonly #leader: Leader;
  readonly #log = new SparseLog(60_000);
  readonly #runs = new Map<MaintenanceTask, MaintenanceRun>();
  readonly #stopping = new AbortController();
  /** Tasks that stopped because their time was up. */
  readonly #unfinished = new Set<MaintenanceTask>();
  readonly #connection: DutyConnection;
  #running = false;
  #timer: NodeJS.Timeout | undefined;
  #turning: Promise<void> | undefined;

  constructor(options: MaintenanceServiceOptions) {
    this.#options = options;
    this.#connection = new DutyConnection({ ...options, duty: 'maintenance', queryTimeoutMs: taskMsMax / 2 });
    const { relay, schema, control, leaseMs, token, logger, lifecycle } = options;
    this.#leader = new Leader({
      name: 'maintenance',
      schema,
      db: control,
      leaseMs,
      token,
      logger,
      onTaken: (epoch) => {
        lifecycle.tell('leading', { relay, epoch });
        logger.info({ relay, epoch }, 'elected leader of maintenance');
        this.#unfinished.clear();
        this.#schedule(Math.random() * Math.min(goOnMs, options.options.intervalMs));
      },
      onLost: (epoch) => {
        clearTimeout(this.#timer);
        lifecycle.tell('deposed', { relay, epoch });
        logger.info({ relay, epoch }, 'another relay leads maintenance');
      },
    });
  }

  get leading(): boolean {
    return this.#leader.duty !== undefined;
  }

  /** The last run of each task that this relay has run, in their order. */
  get runs(): MaintenanceRun[] {
    return maintenanceTasks.flatMap((task) => this.#runs.get(task) ?? []);
  }

  /** Leads from now on if no other relay does. */
  async start(): Promise<void> {
    if (this.#running || this.#stopping.signal.aborted) return;
    this.#running = true;
    void this.#leader.beat();
  }

  /** With each heartbeat. Never fails. */
  beat(): Promise<void> {
    return this.#running ? this.#leader.beat() : Promise.resolve();
  }

  /** One turn, if no other relay leads: otherwise a relay that is only ever run once, by cron, would never do maintenance. */
  async once(): Promise<void> {
    await this.#leader.beat();
    if (!this.leading) return;
    this.#turning = this.#turn(taskMsOnce);
    await this.#turning;
  }

  /** Stops after the current chunk, and leaves the duty to another relay. */
  async stop(): Promise<void> {
    this.#running = false;
    clearTimeout(this.#timer);
    this.#stopping.abort();
    await endDuty(this.#turning, this.#connection, this.#leader);
  }

  #schedule(afterMs: number): void {
    if (!this.#running) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#turning = this.#turn(taskMs).then(() => {
        this.#turning = undefined;
        const { intervalMs } = this.#options.options;
        // Jitter, or relays of many outboxes that were started together would all work at the same moment.
        const pauseMs = intervalMs * (0.9 + 0.2 * Math.random());
        this.#schedule(this.#unfinished.size > 0 ? Math.min(goOnMs, pauseMs) : pauseMs);
      });
    }, afterMs);
  }

  /** Never fails. */
  async #turn(budgetMs: number): Promise<void> {
    try {
      if (!this.#leader.duty) return; // Overdue; the next heartbeat decides.
      const { schema, options } = this.#options;
      const link = await this.#connection.open();
      const last = new Map((await readRuns(link, schema)).map((run) => [run.task, run]));
      for (const task of maintenanceTasks) {
        const agoMs = last.get(task)?.agoMs ?? Number.POSITIVE_INFINITY;
        // Slightly early, because the pause between turns has jitter; and a clock that was set back must not stop
        // maintenance.
        const due = agoMs >= options.intervalMs * 0.8 || agoMs < 0 || this.#unfinished.has(task);
        if (options.skip.has(task) || !due) continue;
        const duty = this.#leader.duty;
        if (!duty || this.#stopping.signal.aborted) break;
        if (!(await this.#run(task, duty, last.get(task), budgetMs))) break;
      }
    } catch (error) {
      this.#warn('turn', { error: errorText(error) }, 'maintenance failed, retrying');
    } finally {
      await this.#connection.close();
    }
  }

  /** Returns whether this relay still leads. */
  async #run(task: MaintenanceTask, duty: OwnedDuty, last: LastRun | undefined, budgetMs: number): Promise<boolean> {
    const { schema, options } = this.#options;
    const began = performance.now();
    // Also ends a statement that hangs: a lost connection would be reopened repeatedly.
    const watchdog = setTimeout(() => void this.#connection.close(), taskMsMax);
    const mayGoOn = this.#mayGoOn(began + budgetMs);
    let result: TaskResult = { changed: 0 };
    let error: string | undefined;
    try {
      result = await runTask[task]({ db: await this.#connection.open(), schema, options, last, mayGoOn });
    } catch (thrown) {
      error = errorText(codedDatabaseError(thrown));
    }
    try {
      if (this.#stopping.signal.aborted && error !== undefined) return false;
      const { more = false, ...did } = result;
      if (more) this.#unfinished.add(task);
      else this.#unfinished.delete(task);
      const durationMs = Math.round(performance.now() - began);
      const run = { task, durationMs, ...did, error, keepMs: keepMsOf(task, options) };
      const stillLeading = await recordRun(await this.#connection.open(), schema, duty, run);
      if (stillLeading) this.#tell(run);
      return stillLeading;
    } catch (thrown) {
      this.#warn('record', { task, error: errorText(thrown) }, 'cannot record what maintenance did');
      return this.leading;
    } finally {
      clearTimeout(watchdog);
    }
  }

  /** Between two chunks. */
  #mayGoOn(deadline: number): () => Promise<boolean> {
    let resumedAt = performance.now();
    return async () => {
      const tookMs = performance.now() - resumedAt;
      await sleep(Math.max(chunkPauseMs, tookMs), undefined, { signal: this.#stopping.signal }).catch(() => {});
      resumedAt = performance.now();
      return resumedAt < deadline && this.leading && !this.#stopping.signal.aborted;
    };
  }

  #tell({ task, durationMs, changed, note, error }: TaskRun & { task: MaintenanceTask }): void {
    const { lifecycle, logger } = this.#options;
    const facts = { task, durationMs, changed, note, error };
    this.#runs.set(task, facts);
    if (error !== undefined) {
      lifecycle.tell('maintenanceFailed', { task, durationMs, error });
      this.#warn(`failed:${task}`, { task, durationMs, error }, 'maintenance task failed, retrying');
      return;
    }
    lifecycle.tell('maintained', { task, durationMs, changed, ...(note === undefined ? {} : { note }) });
    if (changed > 0) logger.info({ task, durationMs, changed, note }, 'maintenance task done');
    else logger.debug({ task, durationMs, note }, 'maintenance task done');
  }

  #warn(kind: string, fields: object, message: string): void {
    if (this.#stopping.signal.aborted) return;
    this.#log.say(kind, (suppressed) => this.#options.logger.warn({ ...fields, suppressed }, message));
  }
}
