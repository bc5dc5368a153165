import type { PgClient } from './client.ts';
import { insideOf } from './client.ts';

/** Calls back when a client's transaction has ended. Needs pg 8.21 or later, or calls of `tell`. */
export class TransactionEnds {
  readonly #awaited = new WeakMap<object, { callbacks: Set<() => void>; stopListening: () => void }>();

  await(client: PgClient, callback: () => void): void {
    const known = this.#awaited.get(client);
    if (known) {
      known.callbacks.add(callback);
      return;
    }
    // 'drain' is emitted with the answer to the last statement sent, so there is nothing to poll.
    const look = () => {
      if (client.getTransactionStatus?.() === 'I') this.tell(client);
    };
    const inside = insideOf(client);
    inside.on?.('drain', look);
    this.#awaited.set(client, {
      callbacks: new Set([callback]),
      stopListening: () => void inside.removeListener?.('drain', look),
    });
  }

  tell(client: object): void {
    const known = this.#awaited.get(client);
    if (!known) return;
    this.#awaited.delete(client);
    known.stopListening();
    for (const callback of known.callbacks) callback();
  }
}
