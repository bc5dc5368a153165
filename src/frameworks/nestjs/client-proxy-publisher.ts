import type { InjectionToken } from '@nestjs/common';
import { reasonOf, untilAborted } from '../../publishers/failure.ts';
import type { Message, Publisher, PublisherCapabilities, PublishOutcome } from '../../publishers/publisher.ts';
import { delivered } from '../../publishers/publisher.ts';

/** The part of `ClientProxy` (`@nestjs/microservices`) that is used. */
export interface ClientProxyLike {
  connect(): Promise<unknown>;
  // biome-ignore lint/suspicious/noExplicitAny: patterns and data are the application's.
  emit(pattern: any, data: any): Observable;
}

interface Observable {
  subscribe(observer: { next(): void; error(error: unknown): void; complete(): void }): unknown;
}

export interface ClientProxyOptions {
  /**
   * What is emitted for a message. `data` is its parsed body: the envelope, unless the destination has another serializer. For the
   * records of a transport (`RmqRecordBuilder`, `{ key, value, headers }` of Kafka). Default: the topic as pattern, and `data`.
   */
  packet?: (message: Message, data: unknown) => { pattern: unknown; data: unknown };
}

/** Names a client by its injection token, for `destinations`. Made by `clientProxy`. */
export class ClientProxyReference {
  readonly client: InjectionToken | ClientProxyLike;
  readonly options: ClientProxyOptions;

  constructor(client: InjectionToken | ClientProxyLike, options: ClientProxyOptions) {
    this.client = client;
    this.options = options;
  }
}

/**
 * A destination that emits events through a client of `@nestjs/microservices`, registered with `ClientsModule`.
 *
 * An event counts as delivered when the client's observable completes. What that proves is up to the transport: with TCP, Redis and
 * NATS it has left this process, and an event may be lost behind it. Kafka and RabbitMQ acknowledge it.
 *
 * @example
 * import { clientProxy, PostcommitModule } from 'postcommit/nestjs';
 *
 * PostcommitModule.forRoot({
 *   db: fromPg(pool),
 *   destinations: { billing: clientProxy('BILLING_CLIENT') },
 * });
 */
export function clientProxy(
  client: InjectionToken | ClientProxyLike,
  options: ClientProxyOptions = {},
): ClientProxyReference {
  return new ClientProxyReference(client, options);
}

/** Publishes through a `ClientProxy`. The client belongs to the application, which closes it. */
export class ClientProxyPublisher implements Publisher {
  readonly kind = 'nest-microservice';
  readonly capabilities: PublisherCapabilities = {
    batchSizeMax: 100,
    batchBytesMax: 1_048_576,
    batchesInFlightMax: 4,
    ordered: true,
    keyRuns: false,
    deduplicates: false,
    cloudEventsPrefix: 'ce_',
  };
  readonly #client: ClientProxyLike;
  readonly #packet: NonNullable<ClientProxyOptions['packet']>;

  constructor(client: ClientProxyLike, { packet }: ClientProxyOptions = {}) {
    this.#client = client;
    this.#packet = packet ?? (({ topic }, data) => ({ pattern: topic, data }));
  }

  async connect(signal: AbortSignal): Promise<void> {
    await untilAborted(Promise.resolve(this.#client.connect()), signal);
  }

  async publish(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    // The relay puts one message of a key into a batch at most, so that these do not overtake each other.
    return Promise.all(batch.map((message) => this.#emit(message, signal)));
  }

  health(signal: AbortSignal): Promise<void> {
    return this.connect(signal);
  }

  async close(): Promise<void> {}

  async #emit(message: Message, signal: AbortSignal): Promise<PublishOutcome> {
    let packet: { pattern: unknown; data: unknown };
    try {
      packet = this.#packet(message, dataOf(message));
    } catch (error) {
      return { kind: 'failed', reason: reasonOf(error) };
    }
    if (packet.data === null || packet.data === undefined) {
      return { kind: 'rejected', reason: 'A client of @nestjs/microservices cannot emit null.' };
    }
    try {
      await untilAborted(completed(this.#client.emit(packet.pattern, packet.data)), signal);
      return delivered;
    } catch (error) {
      // Client errors are indistinguishable. For the relay this is safe: an event that fails alone while others get through becomes a
      // dead letter all the same.
      return { kind: 'unavailable', reason: reasonOf(error) };
    }
  }
}

function dataOf({ body, contentType }: Message): unknown {
  if (!/\bjson\b/.test(contentType)) return body;
  return JSON.parse(typeof body === 'string' ? body : Buffer.from(body).toString());
}

function completed(observable: Observable): Promise<void> {
  return new Promise((resolve, reject) => {
    observable.subscribe({ next: () => {}, error: reject, complete: resolve });
  });
}
