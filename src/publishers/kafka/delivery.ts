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

/** A record on its way: which message of the batch it is, and where it goes. */
export interface Parcel {
  readonly index: number;
  readonly record: KafkaRecord;
  /** At most. */
  readonly bytes: number;
  readonly place: Place;
}

/** A partition of a topic: what the broker takes together or not at all. One object for all parcels of a batch. */
export interface Place {
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

/** Parcels that were not stored, and why; without a failure it was for others, which are settled. */
interface Refused {
  readonly parcels: readonly Parcel[];
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
 * Sends the parcels of a round over one producer, a request for each broker, and settles them. When a request fails for
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

  async send(round: readonly Parcel[]): Promise<void> {
    const byLeader = groupBy(round, ({ place }) => place.leader);
    await Promise.all([...byLeader.values()].map((parcels) => this.#deliver(parcels)));
  }

  async #deliver(given: readonly Parcel[]): Promise<void> {
    for (const { parcels, failure } of await this.#try(this.#sendable(given))) {
      if (failure === undefined) {
        await this.#repeat(parcels);
        continue;
      }
      if (this.#ends(failure, parcels)) continue;
      const places = [...groupBy(parcels, ({ place }) => place).values()];
      // Which partition failed is not known. The others may have been stored, and are not stored again.
      if (places.length > 1) for (const place of places) await this.#repeat(place);
      else await this.#isolate(parcels, failure);
    }
  }

  /** Depth first, so that each call finds at least one record that is refused. */
  async #repeat(given: readonly Parcel[]): Promise<void> {
    const parcels = this.#sendable(given);
    if (parcels.length === 0) return;
    if (this.#repeatsLeft > 0) {
      this.#repeatsLeft--;
      await this.#deliver(parcels);
    } else {
      for (const { index } of parcels) this.#delivery.settle(index, postponed);
    }
  }

  /** All go to one partition, and one of them or their topic was refused. */
  async #isolate(parcels: readonly Parcel[], { about, outcome }: KafkaFailure): Promise<void> {
    const [first] = parcels;
    if (about === 'tooLarge' && first) this.#onTooLarge(first.record.topic, sumBytes(parcels));
    if (about === 'topic' || parcels.length === 1) {
      for (const { index } of parcels) this.#delivery.settle(index, outcome);
      return;
    }
    const half = parcels.length >> 1;
    await this.#repeat(parcels.slice(0, half));
    await this.#repeat(parcels.slice(half));
  }

  /** Settles what was stored and what the client knows to have failed; answers what else was not stored, and why. */
  async #try(parcels: readonly Parcel[]): Promise<Refused[]> {
    if (parcels.length === 0 || !this.#delivery.open) return [];
    if (this.outage !== undefined) {
      return [{ parcels, failure: { about: 'outage', outcome: { kind: 'unavailable', reason: this.outage } } }];
    }
    try {
      if (this.failed && !this.port.resendsSafely) this.port = await this.#replace(this.port);
      await this.port.send(parcels.map(({ record }) => record));
      for (const { index } of parcels) this.#delivery.settle(index, delivered);
      return [];
    } catch (error) {
      this.failed = true;
      if (!(error instanceof SomeFailed)) return [{ parcels, failure: kafkaFailure(error) }];
      return this.#settleKnown(parcels, error);
    }
  }

  #settleKnown(parcels: readonly Parcel[], error: SomeFailed): Refused[] {
    const refused: Parcel[] = [];
    const explained = new Set<Place>();
    for (const parcel of parcels) {
      const cause = error.errors.get(parcel.record);
      if (cause instanceof AnswerIncomplete) this.isStale = true;
      const failure = cause === undefined ? undefined : kafkaFailure(cause);
      if (failure === undefined) {
        this.#delivery.settle(parcel.index, delivered);
      } else if (this.#ends(failure, [parcel])) {
      } else if (error instanceof PartitionsRefused && !(cause instanceof RecordRefused)) {
        refused.push(parcel);
      } else {
        this.#delivery.settle(parcel.index, failure.outcome);
        explained.add(parcel.place);
      }
    }
    return Array.from(
      groupBy(refused, ({ place }) => place),
      ([place, together]) => {
        const cause = error.errors.get(together[0]?.record as KafkaRecord);
        return { parcels: together, failure: explained.has(place) ? undefined : kafkaFailure(cause) };
      },
    );
  }

  #ends({ about, outcome }: KafkaFailure, parcels: readonly Parcel[]): boolean {
    if (about !== 'outage' && about !== 'refused') return false;
    this.outage ??= outcome.kind === 'delivered' ? reasonOf(about) : outcome.reason;
    for (const { index } of parcels) this.#delivery.settle(index, outcome);
    return true;
  }

  #sendable(parcels: readonly Parcel[]): Parcel[] {
    return parcels.filter(({ index }) => !this.#delivery.isHeldBack(index));
  }
}

function sumBytes(parcels: readonly Parcel[]): number {
  return parcels.reduce((sum, { bytes }) => sum + bytes, 0);
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
