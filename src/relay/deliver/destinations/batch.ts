import { behindFailed } from '../../../publishers/key-order.ts';
import type { Message, Publisher, PublishOutcome } from '../../../publishers/publisher.ts';
import { errorText } from '../../../telemetry/error-text.ts';
import { inSpan, isTracing } from '../../../telemetry/spans.ts';
import { abandonGraceMs, publishGraceMs } from './tuning.ts';

const kinds: ReadonlySet<unknown> = new Set(['delivered', 'failed', 'rejected', 'unavailable', 'released']);

/** One call of a publisher, with a time limit. It always has outcomes, whatever the publisher does. */
export class Batch {
  readonly #publisher: Publisher;
  readonly #messages: readonly Message[];
  readonly #timeoutMs: number;
  readonly #controller = new AbortController();
  #giveUp: (() => void) | undefined;
  #abandoned = false;
  readonly #startedAt = performance.now();
  /** Whether it belongs to a part with its own queue. */
  readonly isOfPart: boolean;

  constructor(publisher: Publisher, messages: readonly Message[], timeoutMs: number, isOfPart: boolean) {
    this.isOfPart = isOfPart;
    this.#publisher = publisher;
    this.#messages = messages;
    this.#timeoutMs = timeoutMs;
  }

  get ageMs(): number {
    return performance.now() - this.#startedAt;
  }

  get size(): number {
    return this.#messages.length;
  }

  /** Whether the relay no longer waits for what is not delivered. */
  get abandoned(): boolean {
    return this.#abandoned;
  }

  async run(): Promise<readonly PublishOutcome[]> {
    const timer = setTimeout(() => {
      this.#controller.abort(new Error(`no answer within ${this.#timeoutMs} ms`));
      grace = setTimeout(() => this.#giveUp?.(), publishGraceMs);
    }, this.#timeoutMs);
    let grace: NodeJS.Timeout | undefined;
    const unanswered = new Promise<readonly PublishOutcome[]>((resolve) => {
      this.#giveUp = () => {
        const outcome = this.#unanswered();
        resolve(this.#messages.map(() => outcome));
      };
    });
    try {
      return await Promise.race([this.#publish(), unanswered]);
    } finally {
      clearTimeout(timer);
      clearTimeout(grace);
    }
  }

  /** The signal is aborted, and the publisher has a moment to return what it has delivered. */
  abandon(reason: Error): void {
    if (this.#abandoned) return;
    this.#abandoned = true;
    this.#controller.abort(reason);
    setTimeout(() => this.#giveUp?.(), abandonGraceMs);
  }

  #unanswered(): PublishOutcome {
    return { kind: 'unavailable', reason: `No answer within ${this.#timeoutMs} ms.` };
  }

  async #publish(): Promise<readonly PublishOutcome[]> {
    try {
      return await this.#call(this.#messages);
    } catch (error) {
      return this.#messages.length > 1 ? await this.#oneByOne() : [await this.#thrown(error)];
    }
  }

  async #call(messages: readonly Message[]): Promise<readonly PublishOutcome[]> {
    const { signal } = this.#controller;
    const publish = () => this.#publisher.publish(messages, signal);
    const outcomes: unknown = await (isTracing() ? this.#inSpan(messages, publish) : publish());
    const count = Array.isArray(outcomes) ? outcomes.length : undefined;
    if (count !== messages.length) {
      throw new Error(`the publisher returned ${count ?? 'no list of'} outcomes for ${messages.length} messages`);
    }
    // By index: `every` and `map` skip the holes of an array.
    return messages.map((_, index) => checkedOutcome((outcomes as unknown[])[index]));
  }

  #inSpan(messages: readonly Message[], publish: () => Promise<readonly PublishOutcome[]>) {
    const topic = messages[0]?.topic;
    const operation = {
      name: 'publish' as const,
      system: this.#publisher.kind,
      destination: messages.every((message) => message.topic === topic) ? topic : undefined,
    };
    const sent = messages.map(({ eventId, headers }) => ({ id: eventId, headers }));
    return inSpan(operation, sent, publish, failureOf);
  }

  /** A publisher that throws breaks its contract. Sending the messages alone finds the one at fault. */
  async #oneByOne(): Promise<PublishOutcome[]> {
    const failedKeys = new Set<string>();
    const outcomes: PublishOutcome[] = [];
    for (const message of this.#messages) {
      const { key } = message;
      const isBehind = key !== null && failedKeys.has(key);
      const outcome = isBehind ? behindFailed : await this.#alone(message);
      if (key !== null && outcome.kind !== 'delivered') failedKeys.add(key);
      outcomes.push(outcome);
    }
    return outcomes;
  }

  async #alone(message: Message): Promise<PublishOutcome> {
    if (this.#controller.signal.aborted) return this.#unanswered();
    try {
      return (await this.#call([message]))[0] as PublishOutcome;
    } catch (error) {
      return await this.#thrown(error);
    }
  }

  /** `health()` decides whether the broker failed or the message. */
  async #thrown(error: unknown): Promise<PublishOutcome> {
    const reason = `The publisher threw: ${errorText(error)}`;
    try {
      await this.#publisher.health(this.#controller.signal);
      return { kind: 'failed', reason };
    } catch {
      return { kind: 'unavailable', reason };
    }
  }
}

/** The first message that was not delivered, for the status of the span. */
function failureOf(outcomes: unknown): string | undefined {
  if (!Array.isArray(outcomes)) return 'no outcomes';
  const failed = outcomes.find((outcome) => outcome?.kind !== 'delivered');
  return failed && `${String(failed.kind)}: ${String(failed.reason ?? '')}`;
}

/** A publisher may return anything. The reason of a failure becomes a text here, so that no later step can fail over it. */
function checkedOutcome(outcome: unknown): PublishOutcome {
  const { kind, reason } = (outcome ?? {}) as { kind?: unknown; reason?: unknown };
  if (!kinds.has(kind)) throw new Error('the publisher returned no outcome');
  const known = outcome as PublishOutcome;
  return known.kind === 'delivered' || typeof reason === 'string' ? known : { ...known, reason: errorText(reason) };
}
