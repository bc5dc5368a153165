import { setTimeout as sleep } from 'node:timers/promises';
import { type KafkaFailure, kafkaFailure } from './failure.ts';
import type { KafkaPort } from './port.ts';

/** How long a topic that does not exist is not looked up again. */
const rememberedMs = 2_000;
/**
 * How long the batch that has a topic looked up again waits for it; others do not wait. A topic that exists by now is
 * found within some 20 ms; for one that does not, kafkajs asks four times within 1.4 s.
 */
const waitMs = 100;
const lookUpsAtOnceMax = 10;
const topicsMax = 10_000;

interface MissingTopic {
  failure: KafkaFailure;
  untilMs: number;
  /** Right now. */
  isLookedUp: boolean;
}

/**
 * Topics that do not exist, or that this user may not write to. They are looked up again now and then, over a connection
 * of their own: a batch that waits for one of them delays all its other topics (p90 1,122 ms instead of 14).
 */
export class MissingTopics {
  readonly #connect: () => Promise<KafkaPort>;
  readonly #topics = new Map<string, MissingTopic>();
  readonly #lookUps = new Set<Promise<void>>();
  /** Open while topics are looked up. */
  #port: Promise<KafkaPort> | undefined;

  constructor(connect: () => Promise<KafkaPort>) {
    this.#connect = connect;
  }

  has(topic: string): boolean {
    return this.#topics.has(topic);
  }

  add(topic: string, failure: KafkaFailure): void {
    if (this.#topics.size >= topicsMax) this.#topics.clear();
    this.#topics.set(topic, { failure, untilMs: Date.now() + rememberedMs, isLookedUp: false });
  }

  /** Why the topic is not available; `undefined` if it is not known to be missing, or no longer is. */
  async failureOf(topic: string): Promise<KafkaFailure | undefined> {
    const missing = this.#topics.get(topic);
    if (missing === undefined) return undefined;
    const isDue = !missing.isLookedUp && missing.untilMs <= Date.now() && this.#lookUps.size < lookUpsAtOnceMax;
    if (!isDue) return missing.failure;
    await Promise.race([this.#begin(topic, missing), sleep(waitMs, undefined, { ref: false })]);
    return this.#topics.get(topic) === missing ? missing.failure : undefined;
  }

  async close(): Promise<void> {
    this.#topics.clear();
    const port = await this.#port?.catch(() => undefined);
    await port?.discard();
    await Promise.all(this.#lookUps);
  }

  #begin(topic: string, missing: MissingTopic): Promise<void> {
    missing.isLookedUp = true;
    const lookUp = this.#lookUp(topic, missing).finally(() => {
      missing.isLookedUp = false;
      this.#lookUps.delete(lookUp);
      if (this.#lookUps.size === 0) this.#disconnect();
    });
    this.#lookUps.add(lookUp);
    return lookUp;
  }

  async #lookUp(topic: string, missing: MissingTopic): Promise<void> {
    try {
      this.#port ??= this.#connect();
      await (await this.#port).partitionsOf?.(topic);
      if (this.#topics.get(topic) === missing) this.#topics.delete(topic);
    } catch (error) {
      const failure = kafkaFailure(error);
      // An outage is noticed by the batches themselves, and says nothing about the topic.
      if (failure.about === 'topic') missing.failure = failure;
      missing.untilMs = Date.now() + rememberedMs;
    }
  }

  /** kafkajs fails for all topics that a producer was ever asked for when one of them is gone: the next one is new. */
  #disconnect(): void {
    const port = this.#port;
    this.#port = undefined;
    port?.then((opened) => opened.close()).catch(() => {});
  }
}
