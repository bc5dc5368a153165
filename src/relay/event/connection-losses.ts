/** Losses in a row that cost the event no attempt: an outage, or a failover that ends connections twice. */
export const freeLossesMax = 2;
/** Beyond this the oldest is forgotten: its event has more losses free. */
const callsMax = 10_000;

/**
 * Counts how often in a row a handler lost the connection of its transaction with the same event. An outage must cost no attempt (G6). But
 * a handler may end its own connection, or crash the server, with every call, and nothing distinguishes that from an outage: without
 * a bound such an event would be tried forever (G7).
 */
export class ConnectionLosses {
  readonly #counts = new Map<string, number>();

  /** Notes a loss, and returns whether it costs no attempt. */
  isFree(call: string): boolean {
    const count = (this.#counts.get(call) ?? 0) + 1;
    this.#counts.delete(call);
    this.#counts.set(call, count);
    const [oldest] = this.#counts.size > callsMax ? this.#counts.keys() : [];
    if (oldest !== undefined) this.#counts.delete(oldest);
    return count <= freeLossesMax;
  }

  /** The call ended in another way. */
  forget(call: string): void {
    if (this.#counts.size > 0) this.#counts.delete(call);
  }
}
