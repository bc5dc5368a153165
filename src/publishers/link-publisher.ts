import { reasonOf } from './failure.ts';
import { sendInKeyOrder } from './key-order.ts';
import { type Link, LinkKeeper } from './link-keeper.ts';
import type { Message, Publisher, PublisherCapabilities, PublishOutcome } from './publisher.ts';

/** A link that takes messages one by one and answers for each. */
export interface SendingLink<Prepared> extends Link {
  send(prepared: Prepared): Promise<PublishOutcome>;
  check(): Promise<void>;
}

export interface LinkPublisherOptions<Prepared extends object, L extends SendingLink<Prepared>> {
  kind: string;
  /** As people write it. */
  broker: string;
  /** Messages without an answer at once, over all batches. */
  inFlightMax: number;
  batchesInFlightMax: number;
  connectTimeoutMs: number;
  /** How long the link takes at most to answer for a message. */
  answerMsMax: number;
  capabilities: Pick<PublisherCapabilities, 'deduplicates' | 'cloudEventsPrefix'>;
  openLink: (signal: AbortSignal) => Promise<L>;
  /** The message in the broker's terms, or why it can never be sent. */
  prepare: (message: Message, link: L) => Prepared | PublishOutcome;
}

/** A publisher over one connection, for brokers that acknowledge message by message. */
export function linkPublisher<Prepared extends object, L extends SendingLink<Prepared>>(
  options: LinkPublisherOptions<Prepared, L>,
): Publisher {
  const { kind, broker, inFlightMax, batchesInFlightMax, connectTimeoutMs, openLink, prepare } = options;
  const keeper = new LinkKeeper(broker, connectTimeoutMs, openLink);
  const sendOne = (message: Message, link: L) => {
    const prepared = prepare(message, link);
    return 'kind' in prepared ? Promise.resolve(prepared) : link.send(prepared);
  };
  return {
    kind,
    capabilities: {
      batchSizeMax: Math.ceil(inFlightMax / batchesInFlightMax),
      batchBytesMax: 8_388_608,
      batchesInFlightMax: Math.min(batchesInFlightMax, inFlightMax),
      ordered: true,
      keyRuns: false,
      // When the relay's time is up first, the connection is given up, and with it what other batches have under way.
      // Without the time to connect: while there is no connection, nothing is under way.
      answerMsMax: options.answerMsMax,
      ...options.capabilities,
    },
    connect: (signal) => keeper.open(signal),
    async publish(batch, signal) {
      try {
        return await keeper.use(signal, (link) =>
          sendInKeyOrder(batch, inFlightMax, (message) => sendOne(message, link)),
        );
      } catch (error) {
        const outcome: PublishOutcome = { kind: 'unavailable', reason: reasonOf(error) };
        return batch.map(() => outcome);
      }
    },
    health: (signal) => keeper.use(signal, (link) => link.check()),
    close: () => keeper.close(),
  };
}
