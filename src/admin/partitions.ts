import { setTimeout as sleep } from 'node:timers/promises';
import { codedDatabaseError, sqlState } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import { PostcommitError } from '../errors.ts';
import { examineLocks } from '../outbox/examining/examine-locks.ts';
import { boundLog, findLockHolder, partitionLog, unboundLog, validateLog } from '../outbox/maintaining/convert.ts';
import { dropPartition, reasonOf, sweepPartition } from '../outbox/maintaining/drop-partition.ts';
import type { Partitioning } from '../outbox/maintaining/list-partitions.ts';
import { listPartitions } from '../outbox/maintaining/list-partitions.ts';
import type { PartitionUnit } from '../outbox/maintaining/partition.ts';
import { partitionUnits } from '../outbox/maintaining/partition.ts';
import type { Rotation } from '../outbox/maintaining/rotate.ts';
import { rotate } from '../outbox/maintaining/rotate.ts';
import { describeHolder } from './doctor/describe-holder.ts';
import { queryText } from './query-text.ts';

export interface PatienceOptions {
  /**
   * For how long to try again when other sessions use the log. Each attempt of a conversion or a drop makes writers wait
   * for 200 ms at the most. Default 60,000.
   */
  patienceMs?: number;
}

/** What a conversion is at: locking the log for a moment, reading all of it, or locking it again to exchange the tables. */
export type ConversionStep = 'bound' | 'validate' | 'partition';

export interface ConvertOptions extends PatienceOptions {
  /**
   * Ends it before the next step, or while it waits for the log: the log stays one table, and nothing is left behind. A
   * step that PostgreSQL has begun is finished first; reading a large log takes minutes.
   */
  signal?: AbortSignal;
  /** Called when a step begins. */
  onStep?: (step: ConversionStep) => void;
}

/** What a conversion did. */
export interface Conversion {
  unit: PartitionUnit;
  /** Whether the log was converted; false when it was partitioned before. */
  converted: boolean;
  /** The partition that new events go into. */
  current: number;
  /** Present when `signal` ended it before the log was converted. */
  interrupted?: true;
}

/** Thrown inside of a conversion when its signal says so. */
class Interrupted extends Error {}

/** Something stands on the log, a name is taken, a row does not fit, or PostgreSQL cannot do it with partitions. */
const cannotPartition = ['2BP01', '42P07', '42P16', '0A000', '23514'];

/** Between two attempts, so that writers get more time than we take from them. */
const pauseMs = 500;
const patienceMsDefault = 60_000;
const patienceMsMax = 86_400_000;

/**
 * The partitions of the log, for operators. Made by `admin.partitions`.
 *
 * Relays keep partitions ahead and drop old ones by themselves; none of this is needed day by day.
 */
export class PartitionAdmin {
  readonly #db: Executor;
  readonly #schema: string;

  constructor(db: Executor, schema: string) {
    this.#db = db;
    this.#schema = schema;
  }

  /**
   * Every partition, oldest first: since when, how large, and what keeps it from being dropped.
   *
   * @example
   * const { unit, partitions } = await admin.partitions.list();
   * for (const { number, state, bytes } of partitions) console.log(unit, number, state, bytes);
   */
  list(): Promise<Partitioning> {
    return coded(() => listPartitions(this.#db, this.#schema));
  }

  /**
   * Partitions a log that is not, while writers and relays go on: reads it once without blocking anybody, and then needs
   * it alone for some ten milliseconds. What there is becomes partition 0. On a log that is partitioned it changes what the
   * next partitions hold. If it fails half-way nothing is lost, and it can be called again.
   *
   * From then on an id is unique within its partition only: `insert ... on conflict (id)` into the log fails (42P10), and
   * `outbox.emitOnce` or `select postcommit.emit_once(...)` takes its place.
   *
   * @example
   * const { converted, current } = await admin.partitions.convert('day');
   */
  convert(unit: PartitionUnit, options: ConvertOptions = {}): Promise<Conversion> {
    return coded(async () => {
      if (!partitionUnits.includes(unit)) {
        throw new PostcommitError(
          'POSTCOMMIT_E_BAD_OPTION',
          `Partitions are by 'day' or by 'month'. Got ${JSON.stringify(unit) ?? String(unit)}.`,
        );
      }
      const patience = { patienceMs: checkPatience(options), signal: options.signal };
      const step = <T>(name: ConversionStep, attempt: () => Promise<T>) => {
        if (options.signal?.aborted) throw new Interrupted();
        options.onStep?.(name);
        return this.#patiently(patience, attempt);
      };
      const before = await listPartitions(this.#db, this.#schema);
      let converted: boolean;
      try {
        if (before.unit === 'none') {
          await step('bound', () => boundLog(this.#db, this.#schema));
          await step('validate', () => validateLog(this.#db, this.#schema));
        }
        converted = await step('partition', () => partitionLog(this.#db, this.#schema, unit));
      } catch (error) {
        // A call that only had to wait goes on from there the next time, and would have to wait for this as well.
        const inUse = error instanceof PostcommitError && error.code === 'POSTCOMMIT_E_LOG_IN_USE';
        const patienceMs = Math.min(patience.patienceMs, patienceMsDefault);
        if (!inUse) await this.#patiently({ patienceMs }, () => unboundLog(this.#db, this.#schema)).catch(() => {});
        if (error instanceof Interrupted) return { unit, converted: false, current: 0, interrupted: true };
        throw error;
      }
      const { current = 0 } = await this.#patiently(patience, () => rotate(this.#db, this.#schema));
      return { unit, converted, current };
    });
  }

  /**
   * Opens the next partition now, and makes what is missing ahead. Relays do so when the day or month is over. One that was
   * made just now is opened when the transactions have ended that began before.
   *
   * @example
   * const { opened, error } = await admin.partitions.rotate();
   */
  rotate(options: PatienceOptions = {}): Promise<Rotation> {
    return coded(async () => {
      const patienceMs = checkPatience(options);
      const until = performance.now() + patienceMs;
      const created: number[] = [];
      for (;;) {
        const rotation = await this.#patiently({ patienceMs }, () => rotate(this.#db, this.#schema, { now: true }));
        if (rotation.unit === 'none') throw new PostcommitError('POSTCOMMIT_E_NOT_PARTITIONED');
        created.push(...rotation.created);
        if (!rotation.waiting || performance.now() >= until) return { ...rotation, created };
        await sleep(pauseMs / 10);
      }
    });
  }

  /**
   * Drops a closed partition at once, whatever its age. Refused while anything in it is not delivered. Dead letters that
   * nobody has resolved survive. Answers how many these were.
   *
   * @example
   * const { deadLetters } = await admin.partitions.drop(3);
   */
  drop(number: number, options: PatienceOptions = {}): Promise<{ number: number; deadLetters: number }> {
    return coded(async () => {
      if (!Number.isSafeInteger(number) || number < 0 || number > 9_000_000) {
        throw new PostcommitError(
          'POSTCOMMIT_E_NO_SUCH_PARTITION',
          `Got ${JSON.stringify(number) ?? String(number)}; a partition is named by its number.`,
        );
      }
      const until = performance.now() + checkPatience(options);
      let result = await dropPartition(this.#db, this.#schema, number);
      while (
        'kept' in result &&
        (result.kept === 'unchecked' || result.kept === 'locked') &&
        performance.now() < until
      ) {
        if (result.kept === 'locked') await sleep(pauseMs);
        result = await dropPartition(this.#db, this.#schema, number);
      }
      if ('kept' in result) throw await this.#explain(number, result);
      await sweepPartition(this.#db, this.#schema, number);
      return { number, deadLetters: result.deadLetters };
    });
  }

  async #explain(number: number, kept: Parameters<typeof reasonOf>[0]): Promise<PostcommitError> {
    if (kept.kept === 'locked') return this.#tellWhoHolds();
    if (kept.kept !== 'unknown') {
      return new PostcommitError('POSTCOMMIT_E_PARTITION_KEPT', `Number ${number}: ${reasonOf(kept)}.`);
    }
    const { unit, partitions } = await listPartitions(this.#db, this.#schema);
    if (unit === 'none') return new PostcommitError('POSTCOMMIT_E_NOT_PARTITIONED');
    const [first, last] = [partitions.at(0)?.number, partitions.at(-1)?.number];
    // No record of a dropped partition is kept.
    const what =
      last !== undefined && number < last ? `Number ${number} may have been dropped already` : `Got ${number}`;
    return new PostcommitError('POSTCOMMIT_E_NO_SUCH_PARTITION', `${what}; there are ${first} to ${last}.`);
  }

  /** Repeats what could not lock the log in time, with pauses in between. */
  async #patiently<T>(
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
        if (performance.now() >= until) throw await this.#tellWhoHolds(error);
        await sleep(pauseMs);
      }
    }
  }

  async #tellWhoHolds(cause?: unknown): Promise<PostcommitError> {
    const locks = await examineLocks(this.#db, this.#schema).catch(() => []);
    const advisory = locks.find((each) => each.locks.includes('partitions'));
    const holder = advisory ? undefined : await findLockHolder(this.#db, this.#schema).catch(() => undefined);
    const who = advisory
      ? `The ${describeHolder(advisory)} holds the advisory lock of partitions.`
      : holder &&
        `Process ${holder.pid} (${[holder.user, holder.application, holder.state].filter(Boolean).join(', ')}) is in a transaction since ${Math.round(holder.sinceMs / 1_000)} s: ${queryText(holder.query ?? '')}`;
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

async function coded<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw codedDatabaseError(error);
  }
}
