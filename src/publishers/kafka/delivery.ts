import { reasonOf } from '../failure.ts';
import { behindFailed } from '../key-order.ts';
import { delivered, type Message, type PublishOutcome } from '../publisher.ts';
import { type KafkaFailure, kafkaFailure } from './failure.ts';
import {
  AnswerIncomplete,
  type KafkaPort,
  type KafkaRecord,
  PartitionsRefused,
  RecordRefused,
  SomeFailed,
} from './port.ts';

/** A record with the partition that it goes to, and the message of the batch that it comes from. */
export interface AssignedRecord {
  readonly index: number;
  readonly record: KafkaRecord;
  /** At most. */
  readonly bytes: number;
  readonly topicPartition: TopicPartition;
}

/** A partition of a topic: what the broker takes together or not at all. One object for all records of a batch. */
export interface TopicPartition {
  readonly topic: string;
  /** `undefined` where the client chooses it. */
  readonly partition: number | undefined;
  readonly leader: number;
}

/** What becomes of one batch. Knows which keys have failed, so that nothing behind them is sent. */
export class KafkaDelivery {
  readonly #batch: readonly Message[];
  readonly #outcomes: (PublishOutcome | undefined)[];
  /** The first message that failed, by key. */
  readonly #failedAt = new Map<string, number>();
  #ended = false;

  constructor(batch: readonly Message[]) {
    this.#batch = batch;
    this.#outcomes = new Array(batch.length).fill(undefined);
  }

  /** False once `end` was called: nothing may be sent any more. */
  get open(): boolean {
    return !this.#ended;
  }

  settle(index: number, outcome: PublishOutcome): void {
    if (this.#ended) return;
    this.#outcomes[index] = outcome;
    const key = this.#batch[index]?.key;
    if (outcome.kind === 'delivered' || typeof key !== 'string') return;
    this.#failedAt.set(key, Math.min(index, this.#failedAt.get(key) ?? index));
  }

  /** Whether an earlier message of its key has failed; that is then its outcome. */
  isHeldBack(index: number): boolean {
    if (this.#failedAt.size === 0) return false;
    const key = this.#batch[index]?.key;
    if (typeof key !== 'string' || (this.#failedAt.get(key) ?? index) >= index) return false;
    this.#outcomes[index] = behindFailed;
    return true;
  }

  /** The outcomes, with `unavailable` for all that are not known. What comes in later is ignored. */
  end(reason: string): PublishOutcome[] {
    this.#ended = true;
    const failedKeys = new Set<string>();
    return this.#outcomes.map((known, index) => {
      const key = this.#batch[index]?.key;
      let outcome: PublishOutcome = known ?? { kind: 'unavailable', reason };
      // It was found bad before the one ahead of it failed; its turn comes after that one.
      if (outcome.kind === 'rejected' && typeof key === 'string' && failedKeys.has(key)) outcome = behindFailed;
      if (outcome.kind !== 'delivered' && typeof key === 'string') failedKeys.add(key);
      return outcome;
    });
  }
}

/** Records that were not stored, and why; without a failure it was for others, which are settled. */
interface Refused {
  readonly records: readonly AssignedRecord[];
  readonly failure: KafkaFailure | undefined;
}

export interface RoundSenderOptions {
  readonly delivery: KafkaDelivery;
  /** The broker does not take this many bytes together. */
  onTooLarge(topic: string, bytes: number): void;
  /** A new producer in place of one that failed. */
  replace(port: KafkaPort): Promise<KafkaPort>;
}

/**
 * Requests of one call to find the records that a broker refused. A record alone among 1,000 takes 20, and 1,000 that are
 * all refused take 2,000: longer than the relay waits, which would then count as an outage.
 */
const repeatedRequestsMax = 100;

const postponed: PublishOutcome = {
  kind: 'released',
  reason: `Not sent: ${repeatedRequestsMax} requests went into finding other events of this batch that the broker refuses.`,
};

/**
 * Sends the records of a round over one producer, a request for each broker, and settles them. When a request fails for
 * another reason than an outage, and the client does not know for which partition, its partitions are sent one by one. A
 * partition that fails for one of its records is halved until that record stands alone, unless the broker names it: it
 * fails, and all others arrive. This takes `repeatedRequestsMax` requests at most; what is not known by then is for the
 * next call.
 */
export class RoundSender {
  readonly #delivery: KafkaDelivery;
  readonly #onTooLarge: (topic: string, bytes: number) => void;
  readonly #replace: (port: KafkaPort) => Promise<KafkaPort>;
  port: KafkaPort;
  /** Whether anything failed: this producer should not be used for another batch. */
  failed = false;
  /** Why the broker is unreachable; then nothing more is sent. */
  outage: string | undefined;
  /** Whether the client's view of the cluster is out of date, and with it what every other producer remembers. */
  isStale = false;
  #repeatsLeft = repeatedRequestsMax;

  constructor(port: KafkaPort, { delivery, onTooLarge, replace }: RoundSenderOptions) {
    this.port = port;
    this.#delivery = delivery;
    this.#onTooLarge = onTooLarge;
    this.#replace = replace;
  }

  async send(round: readonly AssignedRecord[]): Promise<void> {
    const byLeader = groupBy(round, ({ topicPartition }) => topicPartition.leader);
    await Promise.all([...byLeader.values()].map((records) => this.#deliver(records)));
  }

  async #deliver(given: readonly AssignedRecord[]): Promise<void> {
    for (const { records, failure } of await this.#try(this.#sendable(given))) {
      if (failure === undefined) {
        await this.#repeat(records);
        continue;
      }
      if (this.#ends(failure, records)) continue;
      const groups = [...groupBy(records, ({ topicPartition }) => topicPartition).values()];
      // Which partition failed is not known. The others may have been stored, and are not stored again.
      if (groups.length > 1) for (const group of groups) await this.#repeat(group);
      else await this.#isolate(records, failure);
    }
  }

  /** Depth first, so that each call finds at least one record that is refused. */
  async #repeat(given: readonly AssignedRecord[]): Promise<void> {
    const records = this.#sendable(given);
    if (records.length === 0) return;
    if (this.#repeatsLeft > 0) {
      this.#repeatsLeft--;
      await this.#deliver(records);
    } else {
      for (const { index } of records) this.#delivery.settle(index, postponed);
    }
  }

  /** All go to one partition, and one of them or their topic was refused. */
  async #isolate(records: readonly AssignedRecord[], { about, outcome }: KafkaFailure): Promise<void> {
    const [first] = records;
    if (about === 'tooLarge' && first) this.#onTooLarge(first.record.topic, sumBytes(records));
    if (about === 'topic' || records.length === 1) {
      for (const { index } of records) this.#delivery.settle(index, outcome);
      return;
    }
    const half = records.length >> 1;
    await this.#repeat(records.slice(0, half));
    await this.#repeat(records.slice(half));
  }

  /** Settles what was stored and what the client knows to have failed; answers what else was not stored, and why. */
  async #try(records: readonly AssignedRecord[]): Promise<Refused[]> {
    if (records.length === 0 || !this.#delivery.open) return [];
    if (this.outage !== undefined) {
      return [{ records, failure: { about: 'outage', outcome: { kind: 'unavailable', reason: this.outage } } }];
    }
    try {
      if (this.failed && !this.port.resendsSafely) this.port = await this.#replace(this.port);
      await this.port.send(records.map(({ record }) => record));
      for (const { index } of records) this.#delivery.settle(index, delivered);
      return [];
    } catch (error) {
      this.failed = true;
      if (!(error instanceof SomeFailed)) return [{ records, failure: kafkaFailure(error) }];
      return this.#settleKnown(records, error);
    }
  }

  #settleKnown(records: readonly AssignedRecord[], error: SomeFailed): Refused[] {
    const refused: AssignedRecord[] = [];
    const explained = new Set<TopicPartition>();
    for (const assigned of records) {
      const cause = error.errors.get(assigned.record);
      if (cause instanceof AnswerIncomplete) this.isStale = true;
      const failure = cause === undefined ? undefined : kafkaFailure(cause);
      if (failure === undefined) {
        this.#delivery.settle(assigned.index, delivered);
      } else if (this.#ends(failure, [assigned])) {
      } else if (error instanceof PartitionsRefused && !(cause instanceof RecordRefused)) {
        refused.push(assigned);
      } else {
        this.#delivery.settle(assigned.index, failure.outcome);
        explained.add(assigned.topicPartition);
      }
    }
    return Array.from(
      groupBy(refused, ({ topicPartition }) => topicPartition),
      ([topicPartition, together]) => {
        const cause = error.errors.get(together[0]?.record as KafkaRecord);
        return { records: together, failure: explained.has(topicPartition) ? undefined : kafkaFailure(cause) };
      },
    );
  }

  #ends({ about, outcome }: KafkaFailure, records: readonly AssignedRecord[]): boolean {
    if (about !== 'outage' && about !== 'refused') return false;
    this.outage ??= outcome.kind === 'delivered' ? reasonOf(about) : outcome.reason;
    for (const { index } of records) this.#delivery.settle(index, outcome);
    return true;
  }

  #sendable(records: readonly AssignedRecord[]): AssignedRecord[] {
    return records.filter(({ index }) => !this.#delivery.isHeldBack(index));
  }
}

function sumBytes(records: readonly AssignedRecord[]): number {
  return records.reduce((sum, { bytes }) => sum + bytes, 0);
}

function groupBy<T, K>(items: readonly T[], keyOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group) group.push(item);
    else groups.set(key, [item]);
  }
  return groups;
}
