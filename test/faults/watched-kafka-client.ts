import type { Consumer, EachBatchPayload } from 'kafkajs';
import type { KafkaConsumerClient } from '../../src/publishers/kafka.ts';
import { deferred } from '../support/wait.ts';

interface OpenBatch {
  readonly size: number;
  /** Messages from its beginning on that are settled. */
  resolved: number;
}

/**
 * A consumer of kafkajs that watches the batches of `consumeKafka`. `tell` is called for every batch that a rebalance has ended. After `hold()`,
 * handlers that call `pass` wait in the middle of a batch until the group rebalances.
 */
export function watchedClient(client: Consumer, tell: (message: object) => void) {
  const batchOf = new Map<string, OpenBatch>();
  let gate: ReturnType<typeof deferred<void>> | undefined;

  async function watch(payload: EachBatchPayload, eachBatch: (payload: EachBatchPayload) => Promise<void>) {
    const { messages } = payload.batch;
    const batch: OpenBatch = { size: messages.length, resolved: 0 };
    const ids = messages.map(({ headers }) => String(headers?.['event-id']));
    for (const id of ids) batchOf.set(id, batch);
    try {
      await eachBatch({
        ...payload,
        resolveOffset(offset) {
          batch.resolved++;
          payload.resolveOffset(offset);
        },
        async heartbeat() {
          try {
            await payload.heartbeat();
          } catch (error) {
            gate?.resolve();
            gate = undefined;
            throw error;
          }
        },
      });
    } catch (error) {
      if ((error as { type?: unknown }).type === 'REBALANCE_IN_PROGRESS') tell({ event: 'rebalance', ...batch });
      throw error;
    } finally {
      for (const id of ids) batchOf.delete(id);
    }
  }

  return {
    client: {
      events: client.events,
      on: client.on.bind(client) as KafkaConsumerClient['on'],
      connect: () => client.connect(),
      disconnect: () => client.disconnect(),
      subscribe: (subscription: Parameters<Consumer['subscribe']>[0]) => client.subscribe(subscription),
      run: ({ eachBatch, ...config }: { eachBatch(payload: EachBatchPayload): Promise<void> }) =>
        client.run({ ...config, eachBatch: (payload) => watch(payload, eachBatch) }),
    },
    hold() {
      gate = deferred<void>();
    },
    /** Waits in the middle of a batch while it is held. */
    async pass(eventId: string): Promise<void> {
      const batch = batchOf.get(eventId);
      if (gate === undefined || batch === undefined || batch.resolved === 0) return;
      tell({ event: 'holding' });
      await gate.promise;
    },
  };
}
