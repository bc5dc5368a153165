import type { ChannelModel } from 'amqplib';
import type { BrokerConnection } from '../broker-connection-keeper.ts';
import { reasonOf } from '../failure.ts';
import type { PublishOutcome } from '../publisher.ts';
import { type AmqpMessage, blame, RabbitmqChannel, type Settle } from './channel.ts';

/** Opens a socket and logs in; the socket is destroyed when the signal is aborted, then and later. */
export type Dial = (signal: AbortSignal) => Promise<ChannelModel>;

// RabbitMQ allows 2,047 channels per connection. Exchanges are named by routes, so their number is not ours to bound.
const channelsMax = 64;
const closeTimeoutMs = 2_000;
// No exchange is called like this: names have no NUL.
const aloneChannel = '\0alone';

/**
 * One connection to RabbitMQ. It is never reconnected, but replaced once it is `lost`.
 *
 * RabbitMQ refuses a publish (no such exchange, no right, too large) by closing the channel, and with it the outcome of
 * every message in flight there is lost. So each exchange has a channel of its own: a missing
 * exchange affects its own messages only. Where one message of a channel is to blame, those that were in flight are sent
 * again, one at a time, until the one at fault is found.
 */
export class RabbitmqConnection implements BrokerConnection {
  readonly #model: ChannelModel;
  readonly #confirmTimeoutMs: number;
  readonly #socket: AbortController;
  readonly #openings = new Map<string, Promise<RabbitmqChannel>>();
  readonly #channels = new Map<string, RabbitmqChannel>();
  /** Called when the connection goes down, to end what waits for an answer. */
  readonly #waiting = new Set<() => void>();
  #lost: string | undefined;
  #blocked: string | undefined;
  #alone: Promise<unknown> = Promise.resolve();

  static async open(dial: Dial, confirmTimeoutMs: number, signal: AbortSignal): Promise<RabbitmqConnection> {
    const socket = new AbortController();
    const giveUp = () => socket.abort(signal.reason);
    if (signal.aborted) throw signal.reason;
    signal.addEventListener('abort', giveUp, { once: true });
    try {
      const connection = new RabbitmqConnection(await dial(socket.signal), confirmTimeoutMs, socket);
      if (signal.aborted) throw signal.reason;
      return connection;
    } catch (error) {
      socket.abort();
      throw signal.aborted ? signal.reason : error;
    } finally {
      signal.removeEventListener('abort', giveUp);
    }
  }

  private constructor(model: ChannelModel, confirmTimeoutMs: number, socket: AbortController) {
    this.#model = model;
    this.#confirmTimeoutMs = confirmTimeoutMs;
    this.#socket = socket;
    // The reason comes with `error` or, when RabbitMQ is shut down in good order, with `close` alone.
    model.on('error', (error) => this.#lose(error.message));
    model.on('close', (error) => this.#lose(error?.message ?? 'it was closed'));
    model.on('blocked', (reason) => {
      this.#blocked = reason || 'no reason given';
      this.#tellDown();
    });
    model.on('unblocked', () => {
      this.#blocked = undefined;
    });
  }

  get lost(): boolean {
    return this.#lost !== undefined;
  }

  /** Why nothing can be sent now; `undefined` while it can. */
  get down(): string | undefined {
    if (this.#lost !== undefined) return `The connection to RabbitMQ is lost: ${this.#lost}`;
    // A memory or disk alarm: RabbitMQ has stopped reading from this connection.
    if (this.#blocked !== undefined) return `RabbitMQ takes no messages now: ${this.#blocked}`;
    return undefined;
  }

  send(message: AmqpMessage): Promise<PublishOutcome> {
    return new Promise((resolve) => {
      this.#sendOn(message.exchange, message, (settled) => {
        resolve(settled.kind === 'suspect' ? this.#sendAlone(message) : settled);
      });
    });
  }

  /** A round trip. Rejects when the connection is down. */
  async check(): Promise<void> {
    const channel = await this.#unlessDown(() => this.#model.createChannel());
    channel.on('error', () => {});
    await this.#unlessDown(() => channel.close());
  }

  /**
   * Closes it at once. Messages that were not sent yet never are. A blocked connection is kept: RabbitMQ
   * will publish what it has of it when the alarm ends, and only on the same channel does that come before a repetition.
   */
  giveUp(reason: string): void {
    if (this.#blocked === undefined) this.#lose(reason);
  }

  async close(): Promise<void> {
    const timer = setTimeout(() => this.#lose('it did not answer to being closed'), closeTimeoutMs);
    await this.#unlessDown(() => this.#model.close()).catch(() => {});
    clearTimeout(timer);
    this.#lose('the publisher was closed');
  }

  #sendOn(channelName: string, message: AmqpMessage, settle: Settle): void {
    const channel = this.#channels.get(channelName);
    if (channel) {
      channel.send(message, settle);
      return;
    }
    this.#openChannel(channelName).then(
      (opened) => opened.send(message, settle),
      (error) => settle({ kind: 'unavailable', reason: this.down ?? `RabbitMQ opened no channel: ${reasonOf(error)}` }),
    );
  }

  /** With nothing else in flight on its channel, so only this message can close it. */
  #sendAlone(message: AmqpMessage): Promise<PublishOutcome> {
    const send = (): Promise<PublishOutcome> =>
      new Promise((resolve) => {
        this.#sendOn(aloneChannel, message, (settled) => {
          resolve(settled.kind === 'suspect' ? blame(settled.error, message) : settled);
        });
      });
    const turn = this.#alone.then(send);
    this.#alone = turn;
    return turn;
  }

  #openChannel(name: string): Promise<RabbitmqChannel> {
    const underWay = this.#openings.get(name);
    if (underWay) return underWay;
    if (this.#channels.size >= channelsMax) this.#closeIdleChannel();
    const opening = this.#unlessDown(() => this.#model.createConfirmChannel())
      .then((confirmChannel) => {
        const channel = new RabbitmqChannel(confirmChannel, this.#confirmTimeoutMs, () => this.down);
        this.#channels.set(name, channel);
        confirmChannel.on('close', () => this.#channels.delete(name));
        return channel;
      })
      .finally(() => this.#openings.delete(name));
    this.#openings.set(name, opening);
    return opening;
  }

  #closeIdleChannel(): void {
    for (const [name, channel] of this.#channels) {
      if (!channel.idle) continue;
      this.#channels.delete(name);
      channel.close();
      return;
    }
  }

  #unlessDown<T>(work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const isDown = () => reject(new Error(this.down));
      if (this.down !== undefined) return isDown();
      this.#waiting.add(isDown);
      work()
        .then(resolve, reject)
        .finally(() => this.#waiting.delete(isDown));
    });
  }

  #lose(reason: string): void {
    if (this.#lost !== undefined) return;
    this.#lost = reason;
    this.#tellDown();
    // Also after RabbitMQ closed it: amqplib half-closes the socket then, and without an answer it stays open.
    this.#socket.abort();
  }

  #tellDown(): void {
    for (const isDown of [...this.#waiting]) isDown();
    for (const channel of this.#channels.values()) channel.interrupt();
  }
}
