import { notTried } from '../../../publishers/key-order.ts';
import type { Message, Publisher, PublishOutcome } from '../../../publishers/publisher.ts';
import { errorText } from '../../../telemetry/error-text.ts';

/** How long a publisher may take to notice that its time is over, or that nobody waits for it any more. */
const timeoutGraceMs = 2_000;
const abandonGraceMs = 250;

const kinds: ReadonlySet<unknown> = new Set(['ok', 'retry', 'reject', 'unavailable']);

/** One call of a publisher: its time limit, and an answer in any case, whatever the publisher does. */
export class Batch {
  readonly #publisher: Publisher;
  readonly #messages: readonly Message[];
  readonly #timeoutMs: number;
  readonly #controller = new AbortController();
  #giveUp: (() => void) | undefined;
  #abandoned = false;
  readonly #startedAt = performance.now();
  /** Whether it is of a part with a queue of its own. */
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

  /** Whether nobody wants to know any more what could not be delivered. */
  get abandoned(): boolean {
    return this.#abandoned;
  }

  async run(): Promise<readonly PublishOutcome[]> {
    const timer = setTimeout(() => {
      this.#controller.abort(new Error(`no answer within ${this.#timeoutMs} ms`));
      grace = setTimeout(() => this.#giveUp?.(), timeoutGraceMs);
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

  /** The publisher is told, and then has a moment to say what it has delivered. */
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
    const outcomes: unknown = await this.#publisher.publish(messages, signal);
    const count = Array.isArray(outcomes) ? outcomes.length : undefined;
    if (count !== messages.length) {
      throw new Error(`the publisher answered ${count ?? 'no list of'} outcomes for ${messages.length} messages`);
    }
    // By index: `every` and `map` pass over the holes of an array.
    return messages.map((_, index) => checkedOutcome((outcomes as unknown[])[index]));
  }

  /** A publisher that throws breaks its contract. Which message made it do so is found out by sending them alone. */
  async #oneByOne(): Promise<PublishOutcome[]> {
    const failedKeys = new Set<string>();
    const outcomes: PublishOutcome[] = [];
    for (const message of this.#messages) {
      const { key } = message;
      const isBehind = key !== null && failedKeys.has(key);
      const outcome = isBehind ? notTried : await this.#alone(message);
      if (key !== null && outcome.kind !== 'ok') failedKeys.add(key);
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

  /** The broker's failure or the message's? The broker is asked. */
  async #thrown(error: unknown): Promise<PublishOutcome> {
    const reason = `The publisher threw: ${errorText(error)}`;
    try {
      await this.#publisher.health(this.#controller.signal);
      return { kind: 'retry', reason };
    } catch {
      return { kind: 'unavailable', reason };
    }
  }
}

/** A publisher may answer anything. The reason of a failure is made a text here, so that no later step can fail over it. */
function checkedOutcome(outcome: unknown): PublishOutcome {
  const { kind, reason } = (outcome ?? {}) as { kind?: unknown; reason?: unknown };
  if (!kinds.has(kind)) throw new Error('the publisher answered no outcome');
  const known = outcome as PublishOutcome;
  return known.kind === 'ok' || typeof reason === 'string' ? known : { ...known, reason: errorText(reason) };
}
