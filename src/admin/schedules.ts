import { setTimeout as sleep } from 'node:timers/promises';
import type { Executor } from '../database/executor.ts';
import { isStorable } from '../database/storable-text.ts';
import { PostcommitError } from '../errors.ts';
import type { ScheduleInfo } from '../outbox/operating/list-schedules.ts';
import { listSchedules } from '../outbox/operating/list-schedules.ts';
import { pauseSchedule, resumeSchedule } from '../outbox/operating/pause-schedule.ts';
import { removeSchedule } from '../outbox/operating/remove-schedule.ts';
import { isTriggerEmitted, triggerSchedule, triggersMax } from '../outbox/operating/trigger-schedule.ts';
import { suggest } from '../suggest.ts';
import type { AuditTrail } from './audit.ts';
import type { PauseOptions } from './destinations.ts';
import { checkReason } from './destinations.ts';
import { withErrorCodes } from './error-codes.ts';
import { checkOptionNames } from './option-names.ts';

export interface TriggerOptions {
  /** How long to wait until a relay has emitted the event. 0: do not wait. Default 5,000. */
  waitMs?: number;
}

const waitMsMax = 600_000;
const pollMs = 50;
const namesMax = 20;

/** Operations on schedules. Created by `outbox.admin.schedules`. */
export class ScheduleAdmin {
  readonly #db: Executor;
  readonly #schema: string;
  readonly #trail: AuditTrail;

  constructor(db: Executor, schema: string, trail: AuditTrail) {
    this.#db = db;
    this.#schema = schema;
    this.#trail = trail;
  }

  /**
   * Every schedule that a relay was ever started with and that was not removed, by name: its state, its last and next tick, and
   * which relays have it.
   *
   * @example
   * for (const { name, state, error } of await admin.schedules.list()) if (state !== 'active') console.log(name, state, error);
   */
  list(): Promise<ScheduleInfo[]> {
    return withErrorCodes(() => listSchedules(this.#db, this.#schema));
  }

  /**
   * Stops a schedule until `resume`: its ticks are skipped. Triggers still work. Pausing a paused schedule only changes the
   * reason.
   *
   * @example
   * await admin.schedules.pause('nightly-report', { reason: 'the warehouse is being moved' });
   */
  pause(name: string, options: PauseOptions = {}): Promise<void> {
    return withErrorCodes(async () => {
      checkOptionNames(options, 'pause', ['reason']);
      const reason = checkReason(options.reason ?? this.#trail.reason);
      await this.#change('pause', name, (db) => pauseSchedule(db, this.#schema, name, reason), reason);
    });
  }

  /**
   * Ends a pause. The next tick is the first one from now on. A schedule that fails is retried with a clean record.
   *
   * @example
   * await admin.schedules.resume('nightly-report');
   */
  resume(name: string): Promise<void> {
    return withErrorCodes(() => this.#change('resume', name, (db) => resumeSchedule(db, this.#schema, name)));
  }

  /**
   * Emits one extra event of a schedule now, even if it is paused. The relay that leads the schedule makes the event, so this
   * returns whether it did within `waitMs`. If not, a relay emits it as soon as one leads.
   *
   * @example
   * const { emitted } = await admin.schedules.trigger('nightly-report');
   */
  trigger(name: string, options: TriggerOptions = {}): Promise<{ emitted: boolean }> {
    return withErrorCodes(async () => {
      checkOptionNames(options, 'trigger', ['waitMs']);
      const waitMs = checkWaitMs(options.waitMs ?? 5_000);
      const deadline = performance.now() + waitMs;
      const number = await this.#trail.record('schedules.trigger', { schedule: name }, async (db) => {
        const triggered = isName(name) ? await triggerSchedule(db, this.#schema, name) : undefined;
        if (triggered === undefined) throw await this.#noSuchSchedule(name);
        if (triggered === null)
          throw new PostcommitError('POSTCOMMIT_E_SCHEDULE_BUSY', `${triggersMax} triggers wait.`);
        return triggered;
      });
      for (;;) {
        if (await isTriggerEmitted(this.#db, this.#schema, name, number)) return { emitted: true };
        if (performance.now() >= deadline) return { emitted: false };
        await sleep(pollMs);
      }
    });
  }

  /**
   * Removes a schedule that no live relay has. Events that it emitted are not changed. A relay that has it adds it again when it
   * starts.
   *
   * @example
   * await admin.schedules.remove('weekly-report');
   */
  remove(name: string): Promise<void> {
    return withErrorCodes(async () => {
      await this.#trail.record('schedules.remove', { schedule: name }, async (db) => {
        const inUse = isName(name) ? await removeSchedule(db, this.#schema, name) : undefined;
        if (inUse === undefined) throw await this.#noSuchSchedule(name);
        if (!inUse) return;
        const found = (await this.list()).find((each) => each.name === name);
        const relays = found?.declarations.map(({ relay }) => relay).slice(0, namesMax) ?? [];
        throw new PostcommitError('POSTCOMMIT_E_SCHEDULE_IN_USE', `Relays: ${relays.join(', ')}.`);
      });
    });
  }

  async #change(
    action: 'pause' | 'resume',
    name: string,
    change: (db: Executor) => Promise<boolean>,
    reason?: string,
  ): Promise<void> {
    const work = async (db: Executor) => {
      if (!isName(name) || !(await change(db))) throw await this.#noSuchSchedule(name);
    };
    await this.#trail.record(`schedules.${action}`, { schedule: name }, work, { reason });
  }

  async #noSuchSchedule(name: unknown): Promise<PostcommitError> {
    const known = (await listSchedules(this.#db, this.#schema)).map((each) => each.name);
    const shown = JSON.stringify(name)?.slice(0, 80) ?? String(name);
    const near = typeof name === 'string' ? suggest(name.slice(0, 80), known) : undefined;
    const more = known.length > namesMax ? ` and ${known.length - namesMax} more` : '';
    const names =
      known.length === 0 ? 'There are none yet.' : `Known schedules: ${known.slice(0, namesMax).join(', ')}${more}.`;
    const detail = `Got ${shown}. ${names}${near ? ` Did you mean ${near}?` : ''}`;
    return new PostcommitError('POSTCOMMIT_E_NO_SUCH_SCHEDULE', detail);
  }
}

function isName(name: unknown): name is string {
  return typeof name === 'string' && isStorable(name);
}

function checkWaitMs(waitMs: number): number {
  if (Number.isInteger(waitMs) && waitMs >= 0 && waitMs <= waitMsMax) return waitMs;
  throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `waitMs must be a whole number from 0 to ${waitMsMax}.`);
}
