import { setTimeout as sleep } from 'node:timers/promises';
import type { ArrayQuery } from '../../database/executor.ts';
import type { ReconnectingClient } from '../../database/reconnecting-client.ts';
import { readServerRun } from '../../outbox/delivering/read-server-run.ts';
import { type RegainedClaims, regainClaims } from '../../outbox/delivering/regain-claims.ts';
import type { Logger } from '../../telemetry/logging.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import { othersRegainMs } from './tuning.ts';

type Connection = Pick<
  ReconnectingClient,
  'query' | 'queryArrays' | 'connections' | 'connected' | 'whenConnected' | 'sessionPid'
>;

export interface ClaimKeeperOptions {
  schema: string;
  /** On which the relay claims, and writes results. */
  connections: { readonly claims: Connection; readonly results: Connection };
  logger: Logger;
  /** The events that were claimed and not yet settled. */
  events: () => readonly ClaimedEvent[];
  isCurrent: (token: string) => boolean;
  /** Resolves when the results of all events that ended before are durable. */
  written: () => Promise<void>;
  /** Claims of this token are gone: the relay must give up all of them. */
  onClaimsLost: (token: string) => void;
}

/**
 * Keeps what the relay has claimed when the server under it is another one: after a crash, be it of one backend, which loses the
 * last claims, or a failover, which may lose events as well. There, each connection first claims again what the relay has in
 * hand, before it writes a result or claims anything.
 *
 * What cannot be claimed again is lost. Its seq may be given to a new event, which a result of the old one would settle: so
 * the relay then gives up its token before it claims anything under it.
 */
export class ClaimKeeper {
  readonly #options: ClaimKeeperOptions;
  /** The server that the relay has claimed on; empty before the first claim. */
  #server = '';
  /** The connection that the server was last examined on, for claims and for results. */
  #claimsOn = 0;
  #resultsOn = 0;
  /** The token that the relay last claimed under. */
  #token = '';
  readonly #stopping = new AbortController();

  constructor(options: ClaimKeeperOptions) {
    this.#options = options;
  }

  /** Statements that claim are sent only on a connection that `mayClaim` has examined: never on the next one, unseen. */
  get db(): Pick<ReconnectingClient, 'query' | 'queryArrays' | 'connections' | 'sessionPid'> {
    const { claims } = this.#options.connections;
    const queryArrays: ArrayQuery = async (...statement) => {
      if (!this.#isExamined) throw new Error('Connection terminated: it was lost before the claim was sent');
      return claims.queryArrays(...statement);
    };
    return {
      query: (text, values) => claims.query(text, values),
      queryArrays,
      get connections() {
        return claims.connections;
      },
      get sessionPid() {
        return claims.sessionPid;
      },
    };
  }

  /** Writes a result. */
  readonly writeResult: ArrayQuery = async (...statement) => {
    const { results } = this.#options.connections;
    if (this.#server !== '' && (!results.connected || results.connections !== this.#resultsOn)) {
      await results.whenConnected();
      const { connections } = results;
      if ((await this.#readServer(results)) !== this.#server) {
        await this.#regain(results, this.#token, this.#options.events());
      }
      this.#resultsOn = connections;
    }
    return results.queryArrays(...statement);
  };

  /** Whether the relay may claim under this token on the server that it is connected to. Waits for a connection. */
  async mayClaim(token: string): Promise<boolean> {
    const { events, isCurrent } = this.#options;
    const { claims } = this.#options.connections;
    this.#token = token;
    // Behind a pooler the server may change without a new connection. That matters only to what is claimed.
    if (this.#isExamined && (claims.sessionPid !== undefined || events().length === 0)) return true;
    do {
      await claims.whenConnected();
      const { connections } = claims;
      let server = await this.#readServer(claims);
      if (this.#server !== '' && server !== this.#server) {
        this.#claimsOn = 0;
        const known = events();
        const found = await this.#regain(claims, token, known);
        if (await this.#hasLost(token, known, found)) return false;
        // The others need a moment to claim again what is theirs.
        if (found.isShared) await sleep(othersRegainMs, undefined, { signal: this.#stopping.signal }).catch(() => {});
        server = found.server;
      }
      if (!isCurrent(token)) return false;
      if (claims.connections !== connections || !claims.connected) continue;
      this.#server = server;
      this.#claimsOn = connections;
    } while (!this.#isExamined && !this.#stopping.signal.aborted);
    return this.#isExamined;
  }

  /** Ends a wait for other relays. */
  stop(): void {
    this.#stopping.abort();
  }

  get #isExamined(): boolean {
    const { claims } = this.#options.connections;
    return claims.connected && claims.connections === this.#claimsOn;
  }

  #readServer(connection: Connection): Promise<string> {
    return readServerRun(connection.queryArrays, this.#options.schema);
  }

  async #regain(connection: Connection, token: string, known: readonly ClaimedEvent[]): Promise<RegainedClaims> {
    const { schema, logger } = this.#options;
    const found = await regainClaims(connection.queryArrays, schema, token, known);
    const { regained } = found;
    if (regained > 0) logger.warn({ events: regained }, 'server lost claims of this relay, claimed the events again');
    return found;
  }

  async #hasLost(token: string, known: readonly ClaimedEvent[], { owned }: RegainedClaims): Promise<boolean> {
    const { events, isCurrent, logger, onClaimsLost, written } = this.#options;
    const missing = known.filter(({ seq }) => !owned.has(seq));
    if (missing.length === 0) return false;
    // Results that wait change nothing on this server: nothing that this token owns has the seq of a missing event. Once
    // they are written, they need no claim.
    await written();
    const left = new Set(events());
    const lost = missing.filter((event) => left.has(event)).length;
    if (lost === 0 || !isCurrent(token)) return false;
    logger.warn({ events: lost }, 'server does not have claims of this relay, giving up all of them');
    onClaimsLost(token);
    return true;
  }
}
