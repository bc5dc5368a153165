import { type BrokerConnection, BrokerConnectionKeeper } from './broker-connection-keeper.ts';
import { reasonOf } from './failure.ts';
import { sendInKeyOrder } from './key-order.ts';
import type { Message, Publisher, PublisherCapabilities, PublishOutcome } from './publisher.ts';

/** A connection that sends messages one by one and returns the outcome of each. */
export interface SendingConnection<Prepared> extends BrokerConnection {
  send(prepared: Prepared): Promise<PublishOutcome>;
  check(): Promise<void>;
}

export interface ConnectionPublisherOptions<Prepared extends object, Connection extends SendingConnection<Prepared>> {
  kind: string;
  /** The broker's name in messages. */
  broker: string;
  /** Messages in flight at most, over all batches. */
  inFlightMax: number;
  batchesInFlightMax: number;
  connectTimeoutMs: number;
  /** How long the outcome of a message takes at most. */
  answerMsMax: number;
  capabilities: Pick<PublisherCapabilities, 'deduplicates' | 'cloudEventsPrefix'>;
  connect: (signal: AbortSignal) => Promise<Connection>;
  /** The message in the broker's terms, or why it can never be sent. */
  prepare: (message: Message, connection: Connection) => Prepared | PublishOutcome;
}

/** A publisher over one connection, for brokers that acknowledge message by message. */
export function connectionPublisher<Prepared extends object, Connection extends SendingConnection<Prepared>>(
  options: ConnectionPublisherOptions<Prepared, Connection>,
): Publisher {
  const { kind, broker, inFlightMax, batchesInFlightMax, connectTimeoutMs, connect, prepare } = options;
  const keeper = new BrokerConnectionKeeper(broker, connectTimeoutMs, connect);
  const sendOne = (message: Message, connection: Connection) => {
    const prepared = prepare(message, connection);
    return 'kind' in prepared ? Promise.resolve(prepared) : connection.send(prepared);
  };
  return {
    kind,
    capabilities: {
      batchSizeMax: Math.ceil(inFlightMax / batchesInFlightMax),
      batchBytesMax: 8_388_608,
      batchesInFlightMax: Math.min(batchesInFlightMax, inFlightMax),
      ordered: true,
      keyRuns: false,
      // When the relay's time limit fires first, the connection is closed, together with what other batches have in flight.
      // The time to connect is not included: without a connection nothing is in flight.
      answerMsMax: options.answerMsMax,
      ...options.capabilities,
    },
    connect: (signal) => keeper.open(signal),
    async publish(batch, signal) {
      try {
        return await keeper.use(signal, (connection) =>
          sendInKeyOrder(batch, inFlightMax, (message) => sendOne(message, connection)),
        );
      } catch (error) {
        const outcome: PublishOutcome = { kind: 'unavailable', reason: reasonOf(error) };
        return batch.map(() => outcome);
      }
    },
    health: (signal) => keeper.use(signal, (connection) => connection.check()),
    close: () => keeper.close(),
  };
}
