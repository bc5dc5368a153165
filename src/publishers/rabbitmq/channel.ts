import type { ConfirmChannel, Options } from 'amqplib';
import { cutReason, reasonOf } from '../failure.ts';
import { delivered, type PublishOutcome } from '../publisher.ts';

/** A message in AMQP's terms. */
export interface AmqpMessage {
  readonly exchange: string;
  readonly routingKey: string;
  readonly content: Buffer;
  readonly properties: Options.Publish;
}

/** The code (404, 403, 406 …) and text with which RabbitMQ closed a channel. */
export interface ChannelError {
  readonly code: number | undefined;
  readonly message: string;
}

/** `suspect`: the channel was closed because of one of the messages in flight, and it is not known which. */
export type Settled = PublishOutcome | { readonly kind: 'suspect'; readonly error: ChannelError };

interface Sent {
  readonly message: AmqpMessage;
  readonly sentAt: number;
}

export type Settle = (settled: Settled) => void;

/** A channel in confirm mode: many messages in flight, each settled by RabbitMQ's confirm. */
export class RabbitmqChannel {
  readonly #channel: ConfirmChannel;
  /** Why nothing can be sent on the connection now. */
  readonly #down: () => string | undefined;
  readonly #confirmTimeoutMs: number;
  /** What was sent and is not confirmed yet, the oldest first. */
  readonly #underWay = new Map<Settle, Sent>();
  /** How many messages came back as unroutable whose confirm is still to come, by message. */
  readonly #returned = new Map<string, { count: number; reason: string }>();
  #error: ChannelError | undefined;
  #isClosed = false;
  #sweeper: NodeJS.Timeout | undefined;
  /** Those that wait for the write buffer to drain; `undefined` while there is room. */
  #waiting: (() => void)[] | undefined;

  constructor(channel: ConfirmChannel, confirmTimeoutMs: number, down: () => string | undefined) {
    this.#channel = channel;
    this.#confirmTimeoutMs = confirmTimeoutMs;
    this.#down = down;
    channel.on('error', (error: Error & { code?: number }) => {
      this.#error = { code: error.code, message: error.message };
    });
    // Before amqplib's own listener, which takes every confirm that is still to come for a refusal.
    channel.prependListener('close', () => this.#onClose());
    channel.on('drain', () => this.#wakeWaiting());
    channel.on('return', ({ fields, properties }) => {
      // The frame has these too, but amqplib's types leave them out.
      const { replyCode, replyText } = fields as typeof fields & { replyCode: number; replyText: string };
      const key = identityOf(fields.exchange, fields.routingKey, properties.messageId);
      const count = (this.#returned.get(key)?.count ?? 0) + 1;
      this.#returned.set(key, { count, reason: `${replyCode} ${replyText}` });
    });
  }

  get idle(): boolean {
    return this.#underWay.size === 0 && this.#waiting === undefined;
  }

  /** A callback, not a promise: a thousand promises in flight cost more than the sending. */
  send(message: AmqpMessage, settle: Settle): void {
    const down = this.#down();
    if (down !== undefined) settle({ kind: 'unavailable', reason: down });
    else if (this.#isClosed) settle(this.#whyClosed(message));
    else if (this.#waiting) this.#waiting.push(() => this.send(message, settle));
    else this.#publish(message, settle);
  }

  /** Settles everything in flight, because the connection is down. Later confirms are ignored. */
  interrupt(): void {
    const outcome: PublishOutcome = { kind: 'unavailable', reason: this.#down() ?? 'The connection is down.' };
    for (const settle of this.#underWay.keys()) settle(outcome);
    this.#underWay.clear();
    this.#wakeWaiting();
  }

  close(): void {
    this.#channel.close().catch(() => {});
  }

  #publish(message: AmqpMessage, settle: Settle): void {
    const { exchange, routingKey, content, properties } = message;
    const onConfirm = (error: Error | null) => {
      const outcome = this.#outcomeOf(message, error);
      if (this.#underWay.delete(settle)) settle(outcome);
    };
    try {
      const hasRoom = this.#channel.publish(exchange, routingKey, content, properties, onConfirm);
      this.#underWay.set(settle, { message, sentAt: performance.now() });
      this.#sweeper ??= setTimeout(() => this.#sweep(), this.#confirmTimeoutMs);
      if (!hasRoom) this.#waiting ??= [];
    } catch (error) {
      // amqplib encodes the whole message before it writes the first byte of it.
      settle({
        kind: 'rejected',
        reason: `AMQP cannot carry the message: ${reasonOf(error)}`,
      });
    }
  }

  /** Settles what RabbitMQ does not confirm. One timer for all messages: a timer each would cost more than the sending. */
  #sweep(): void {
    this.#sweeper = undefined;
    const now = performance.now();
    for (const [settle, { message, sentAt }] of this.#underWay) {
      const leftMs = sentAt + this.#confirmTimeoutMs - now;
      if (leftMs > 0) {
        this.#sweeper = setTimeout(() => this.#sweep(), leftMs);
        return;
      }
      this.#underWay.delete(settle);
      const { exchange, routingKey } = message;
      const where = `exchange '${exchange}', routing key '${routingKey}'`;
      const reason = cutReason(`RabbitMQ did not confirm it within ${this.#confirmTimeoutMs} ms: ${where}.`);
      settle({ kind: 'unavailable', reason });
    }
  }

  #onClose(): void {
    clearTimeout(this.#sweeper);
    this.#isClosed = true;
    const underWay = [...this.#underWay];
    this.#underWay.clear();
    // When the whole connection ends, amqplib reports it only after its channels were closed.
    queueMicrotask(() => {
      for (const [settle, { message }] of underWay) settle(this.#whyClosed(message));
    });
    this.#wakeWaiting();
  }

  #outcomeOf(message: AmqpMessage, error: Error | null): PublishOutcome {
    // RabbitMQ sends the return before the confirm, and the confirm of an unroutable message is positive.
    const reason = this.#takeReturned(message);
    const { exchange, routingKey } = message;
    if (reason !== undefined) {
      const at = exchange === '' ? `no queue '${routingKey}'` : `no queue bound to exchange '${exchange}' for it`;
      return {
        kind: 'failed',
        reason: cutReason(
          `Unroutable: exchange '${exchange}', routing key '${routingKey}': ${at} (RabbitMQ: ${reason}).`,
        ),
      };
    }
    if (error === null) return delivered;
    return {
      kind: 'failed',
      reason: cutReason(
        `RabbitMQ refused it (nack) at exchange '${exchange}', routing key '${routingKey}': a queue is full or failed.`,
      ),
    };
  }

  #takeReturned({ exchange, routingKey, properties }: AmqpMessage): string | undefined {
    const key = identityOf(exchange, routingKey, properties.messageId);
    const returned = this.#returned.get(key);
    if (returned === undefined) return undefined;
    returned.count -= 1;
    if (returned.count === 0) this.#returned.delete(key);
    return returned.reason;
  }

  #whyClosed(message: AmqpMessage): Settled {
    const down = this.#down();
    if (down !== undefined) return { kind: 'unavailable', reason: down };
    const error = this.#error ?? { code: undefined, message: 'The channel was closed.' };
    return concernsExchange(error) ? blame(error, message) : { kind: 'suspect', error };
  }

  #wakeWaiting(): void {
    const waiting = this.#waiting ?? [];
    this.#waiting = undefined;
    for (const wake of waiting) wake();
  }
}

/** What becomes of the message that made RabbitMQ close a channel. */
export function blame({ code, message: words }: ChannelError, { exchange, routingKey }: AmqpMessage): PublishOutcome {
  const reason = cutReason(`Exchange '${exchange}', routing key '${routingKey}': ${words}`);
  // PRECONDITION_FAILED: too large, or a header RabbitMQ cannot read. An exchange or a right can still be granted.
  return code === 406 ? { kind: 'rejected', reason } : { kind: 'failed', reason };
}

/** Whether every message on the channel would fail the same way: the exchange is missing, or the user has no right to it. */
function concernsExchange({ code, message }: ChannelError): boolean {
  return code === 404 || (code === 403 && !message.includes(" to topic '"));
}

function identityOf(exchange: string, routingKey: string, messageId: unknown): string {
  return `${exchange}\0${routingKey}\0${messageId}`;
}
