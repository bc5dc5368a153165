import type { Executor } from '../../database/executor.ts';
import { releaseLostClaims } from '../../outbox/delivering/release-lost-claims.ts';
import { lostClaimsCheckMs } from './tuning.ts';

/**
 * Whether the relay may own events that it does not know of, because the result of a claim was lost. A statement goes on without its
 * client, so such a claim may take effect much later. Until it cannot any more, each claim carries the seqs that the relay knows (see
 * claim_many.sql), and the fast claim of one event is not used.
 *
 * That ends with a new token, and when the server processes of the lost claims have ended: what the relay does not know is freed
 * then. Behind a transaction pooler these processes are not known, so only a new token ends it.
 */
export class LostClaims {
  #isPossible = false;
  /** Server processes that may still claim; `undefined` if one is not known. */
  #sessions: Set<number> | undefined = new Set();
  #checkAt = Number.NEGATIVE_INFINITY;
  #token = '';

  get arePossible(): boolean {
    return this.#isPossible;
  }

  /** The result of a claim may be lost, on the connection to this server process. */
  inSession(pid: number | undefined): void {
    this.#isPossible = true;
    if (pid === undefined) this.#sessions = undefined;
    else this.#sessions?.add(pid);
  }

  /** The result of a claim is lost, which has committed. */
  committed(): void {
    this.#isPossible = true;
  }

  useToken(token: string): void {
    if (token !== this.#token) this.#end();
    this.#token = token;
  }

  /** To be called while no claim is under way. Returns how many events were freed. */
  async release(db: Executor, schema: string, knownSeqs: () => readonly string[]): Promise<number> {
    const now = performance.now();
    if (!this.#isPossible || this.#sessions === undefined || now < this.#checkAt) return 0;
    this.#checkAt = now + lostClaimsCheckMs;
    const options = { sessions: [...this.#sessions], knownSeqs: knownSeqs() };
    const released = await releaseLostClaims(db, schema, this.#token, options);
    if (released !== undefined) this.#end();
    return released ?? 0;
  }

  #end(): void {
    this.#isPossible = false;
    this.#sessions = new Set();
    this.#checkAt = Number.NEGATIVE_INFINITY;
  }
}
