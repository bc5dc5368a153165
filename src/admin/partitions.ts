import { setTimeout as sleep } from 'node:timers/promises';
import { sqlState } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import { PostcommitError } from '../errors.ts';
import { examineLocks } from '../outbox/examining/examine-locks.ts';
import {
  constrainLog,
  findLockHolder,
  partitionLog,
  unconstrainLog,
  validateLog,
} from '../outbox/maintaining/convert.ts';
import { dropPartition, reasonOf, sweepPartition } from '../outbox/maintaining/drop-partition.ts';
import type { Partitioning } from '../outbox/maintaining/list-partitions.ts';
import { listPartitions } from '../outbox/maintaining/list-partitions.ts';
import type { PartitionUnit } from '../outbox/maintaining/partition.ts';
import { partitionUnits } from '../outbox/maintaining/partition.ts';
import type { Rotation } from '../outbox/maintaining/rotate.ts';
import { rotate } from '../outbox/maintaining/rotate.ts';
import type { AuditTrail } from './audit.ts';
import { describeHolder } from './doctor/holder-description.ts';
import { withErrorCodes } from './error-codes.ts';
import { queryText } from './query-text.ts';

export interface PatienceOptions {
  /**
   * How long to retry while other sessions use the log. Each attempt of a conversion or a drop blocks writers for at most
   * 200 ms. Default 60,000.
   */
  patienceMs?: number;
}

/** The steps of a conversion: lock the log briefly, read all of it, lock it again to swap the tables. */
export type ConversionStep = 'constrain' | 'validate' | 'partition';

export interface ConvertOptions extends PatienceOptions {
  /**
   * Stops the conversion before its next step, or while it waits for the log: the log stays one table, and the conversion is
   * undone. A step that PostgreSQL has started is finished first; reading a large log takes minutes.
   */
  signal?: AbortSignal;
  /** Called when a step starts. */
  onStep?: (step: ConversionStep) => void;
}

/** The result of a conversion. */
export interface Conversion {
  unit: PartitionUnit;
  /** Whether the log was converted; false if it was already partitioned. */
  converted: boolean;
  /** The partition that new events go into. */
  current: number;
  /** Present when `signal` stopped it before the log was converted. */
  interrupted?: true;
}

/** Thrown inside a conversion when its signal is aborted. */
class Interrupted extends Error {}

/** Another object depends on the log, a name is taken, a row violates the bounds, or partitions do not support it. */
const cannotPartition = ['2BP01', '42P07', '42P16', '0A000', '23514'];

/** Pause between two attempts: writers get more time than the attempts block them. */
const pauseMs = 500;
const patienceMsDefault = 60_000;
const patienceMsMax = 86_400_000;

/**
 * Operations on the partitions of the log. Created by `admin.partitions`.
 *
 * Relays create and drop partitions themselves; these methods are not needed in normal operation.
 */
export class PartitionAdmin {
  readonly #db: Executor;
  readonly #schema: string;
  readonly #trail: AuditTrail;

  constructor(db: Executor, schema: string, trail: AuditTrail) {
    this.#db = db;
    this.#schema = schema;
    this.#trail = trail;
  }

  /**
   * Every partition, oldest first: when it was opened and closed, its size, and what prevents dropping it.
   *
   * @example
   * const { unit, partitions } = await admin.partitions.list();
   * for (const { number, state, bytes } of partitions) console.log(unit, number, state, bytes);
   */
  list(): Promise<Partitioning> {
    return withErrorCodes(() => listPartitions(this.#db, this.#schema));
  }

  /**
   * Partitions a log that is one table, while services emit and relays deliver: reads the log once without blocking other
   * sessions, then locks it exclusively for about 10 ms. Existing events become partition 0. If the log is already
   * partitioned, this changes the unit of future partitions. If it fails nothing is lost, and it can be called again.
   *
   * Afterwards ids are unique within a partition only: `insert ... on conflict (id)` into the log fails (42P10); use
   * `outbox.emitOnce` or `select postcommit.emit_once(...)` instead.
   *
   * @example
   * const { converted, current } = await admin.partitions.convert('day');
   */
  convert(unit: PartitionUnit, options: ConvertOptions = {}): Promise<Conversion> {
    return withErrorCodes(async () => {
      if (!partitionUnits.includes(unit)) {
        throw new PostcommitError(
          'POSTCOMMIT_E_BAD_OPTION',
          `The unit of partitions must be 'day' or 'month'. Got ${JSON.stringify(unit) ?? String(unit)}.`,
        );
      }
      const patience = { patienceMs: checkPatience(options), signal: options.signal };
      const step = <T>(name: ConversionStep, attempt: () => Promise<T>) => {
        if (options.signal?.aborted) throw new Interrupted();
        options.onStep?.(name);
        return this.#withRetries(patience, attempt);
      };
      const before = await listPartitions(this.#db, this.#schema);
      let converted: boolean;
      try {
        if (before.unit === 'none') {
          await step('constrain', () => constrainLog(this.#db, this.#schema));
          await step('validate', () => validateLog(this.#db, this.#schema));
        }
        converted = await step('partition', () => partitionLog(this.#db, this.#schema, unit));
      } catch (error) {
        // A call that only ran out of time continues from here next time. Undoing would also have to wait for the log.
        const inUse = error instanceof PostcommitError && error.code === 'POSTCOMMIT_E_LOG_IN_USE';
        const patienceMs = Math.min(patience.patienceMs, patienceMsDefault);
        if (!inUse)
          await this.#withRetries({ patienceMs }, () => unconstrainLog(this.#db, this.#schema)).catch(() => {});
        if (error instanceof Interrupted) return { unit, converted: false, current: 0, interrupted: true };
        throw error;
      }
      const { current = 0 } = await this.#withRetries(patience, () => rotate(this.#db, this.#schema));
      return { unit, converted, current };
    });
  }

  /**
   * Opens the next partition now, and creates spare partitions that are missing. Relays do this when the day or month is
   * over. A new partition is opened when all transactions that began before its creation have ended.
   *
   * @example
   * const { opened, error } = await admin.partitions.rotate();
   */
  rotate(options: PatienceOptions = {}): Promise<Rotation> {
    return withErrorCodes(async () => {
      const patienceMs = checkPatience(options);
      const until = performance.now() + patienceMs;
      const created: number[] = [];
      for (;;) {
        const rotation = await this.#withRetries({ patienceMs }, () => rotate(this.#db, this.#schema, { now: true }));
        if (rotation.unit === 'none') throw new PostcommitError('POSTCOMMIT_E_NOT_PARTITIONED');
        created.push(...rotation.created);
        if (!rotation.waiting || performance.now() >= until) return { ...rotation, created };
        await sleep(pauseMs / 10);
      }
    });
  }

  /**
   * Drops a closed partition now, whatever its age. Fails while it has undelivered events. Unresolved dead letters are kept;
   * returns their number.
   *
   * @example
   * const { deadLetters } = await admin.partitions.drop(3);
   */
  drop(number: number, options: PatienceOptions = {}): Promise<{ number: number; deadLetters: number }> {
    return withErrorCodes(async () => {
      if (!Number.isSafeInteger(number) || number < 0 || number > 9_000_000) {
        throw new PostcommitError(
          'POSTCOMMIT_E_NO_SUCH_PARTITION',
          `Got ${JSON.stringify(number) ?? String(number)}. Pass the number of a partition.`,
        );
      }
      const until = performance.now() + checkPatience(options);
      return this.#trail.record('partitions.drop', { partition: number }, (db) => this.#drop(db, number, until));
    });
  }

  async #drop(db: Executor, number: number, until: number): Promise<{ number: number; deadLetters: number }> {
    let result = await dropPartition(db, this.#schema, number);
    while ('kept' in result && (result.kept === 'unchecked' || result.kept === 'locked') && performance.now() < until) {
      if (result.kept === 'locked') await sleep(pauseMs);
      result = await dropPartition(db, this.#schema, number);
    }
    if ('kept' in result) throw await this.#whyKept(number, result);
    await sweepPartition(db, this.#schema, number);
    return { number, deadLetters: result.deadLetters };
  }

  async #whyKept(number: number, kept: Parameters<typeof reasonOf>[0]): Promise<PostcommitError> {
    if (kept.kept === 'locked') return this.#logInUse();
    if (kept.kept !== 'unknown') {
      return new PostcommitError('POSTCOMMIT_E_PARTITION_KEPT', `Partition ${number}: ${reasonOf(kept)}.`);
    }
    const { unit, partitions } = await listPartitions(this.#db, this.#schema);
    if (unit === 'none') return new PostcommitError('POSTCOMMIT_E_NOT_PARTITIONED');
    const [first, last] = [partitions.at(0)?.number, partitions.at(-1)?.number];
    // Dropped partitions are not recorded.
    const what = last !== undefined && number < last ? `Partition ${number} may have been dropped` : `Got ${number}`;
    return new PostcommitError('POSTCOMMIT_E_NO_SUCH_PARTITION', `${what}. The partitions are ${first} to ${last}.`);
  }

  /** Retries an attempt that could not lock the log in time, with pauses in between. */
  async #withRetries<T>(
    { patienceMs, signal }: { patienceMs: number; signal?: AbortSignal | undefined },
    attempt: () => Promise<T>,
  ): Promise<T> {
    const until = performance.now() + patienceMs;
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        const code = sqlState(error);
        if (code !== undefined && cannotPartition.includes(code)) {
          const message = error instanceof Error ? error.message : String(error);
          throw new PostcommitError('POSTCOMMIT_E_CANNOT_PARTITION', `(${message})`, { cause: error });
        }
        if (code !== '55P03' && code !== '40P01') throw error;
        if (signal?.aborted) throw new Interrupted();
        if (performance.now() >= until) throw await this.#logInUse(error);
        await sleep(pauseMs);
      }
    }
  }

  async #logInUse(cause?: unknown): Promise<PostcommitError> {
    const locks = await examineLocks(this.#db, this.#schema).catch(() => []);
    const advisory = locks.find((each) => each.locks.includes('partitions'));
    const holder = advisory ? undefined : await findLockHolder(this.#db, this.#schema).catch(() => undefined);
    const who = advisory
      ? `The ${describeHolder(advisory)} holds the advisory lock of partitions.`
      : holder &&
        `Process ${holder.pid} (${[holder.user, holder.application, holder.state].filter(Boolean).join(', ')}) has had a transaction open for ${Math.round(holder.sinceMs / 1_000)} s: ${queryText(holder.query ?? '')}`;
    return new PostcommitError('POSTCOMMIT_E_LOG_IN_USE', who, { cause });
  }
}

function checkPatience(options: PatienceOptions): number {
  const { patienceMs = patienceMsDefault } = options;
  if (typeof patienceMs !== 'number' || !(patienceMs >= 0 && patienceMs <= patienceMsMax)) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `patienceMs must be a number from 0 to ${patienceMsMax}.`);
  }
  return patienceMs;
}
