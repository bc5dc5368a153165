import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { isIP, type LookupFunction, connect as openTcp, type Socket } from 'node:net';
import { connect as openTls, type SecureContextOptions } from 'node:tls';
import { publicOnly, refusePrivateLiteral } from './address.ts';

/** Options of `node:tls`: what to trust, and the client certificate. */
export interface WebhookTlsOptions extends SecureContextOptions {
  /** `false` accepts any certificate: for tests alone. Default `true`. */
  rejectUnauthorized?: boolean;
  /** The name that the certificate must have. Default: the host of the URL. */
  servername?: string;
}

/** Idle connections over all hosts. Beyond that a connection is closed after its request. */
const idleMax = 256;
/** Idle connections are closed after this time, or sooner when the receiver announces it. */
const idleMs = 10_000;

export interface Agents {
  /** With connections that are used again. */
  readonly pooled: HttpAgent;
  /** With a new connection for each request. */
  readonly fresh: HttpAgent;
}

interface ConnectionOptions {
  lookup: LookupFunction;
  perHostMax: number;
  /** For the destination's own URL. */
  tls: WebhookTlsOptions;
  /** For URLs from routes. */
  routeTls: WebhookTlsOptions;
  privateFromRoute: boolean;
}

/** All connections of the publisher. URLs from routes have connections of their own, which reach public addresses only. */
export class Connections {
  readonly #options: ConnectionOptions;
  readonly #agents = new Map<string, Agents>();

  constructor(options: ConnectionOptions) {
    this.#options = options;
  }

  /** Throws `PrivateAddress` where the URL itself names one that it must not reach. */
  agentsFor(url: URL, fromRoute: boolean): Agents {
    const guarded = fromRoute && !this.#options.privateFromRoute;
    if (guarded) refusePrivateLiteral(url);
    // Never shared: an idle connection to a private address must not be there for a URL that may not reach it.
    const name = `${fromRoute ? 'route' : 'own'} ${url.protocol}`;
    const known = this.#agents.get(name);
    if (known !== undefined) return known;
    const { lookup, perHostMax, tls, routeTls } = this.#options;
    const shared = { ...(fromRoute ? routeTls : tls), lookup: guarded ? publicOnly(lookup) : lookup };
    const Agent = url.protocol === 'https:' ? HttpsAgent : HttpAgent;
    const agents = {
      pooled: withIdleLimit(
        new Agent({ ...shared, keepAlive: true, maxFreeSockets: perHostMax, timeout: idleMs, scheduling: 'lifo' }),
      ),
      fresh: new Agent({ ...shared, keepAlive: false }),
    };
    this.#agents.set(name, agents);
    return agents;
  }

  /** Opens a connection to the destination's own URL and closes it: the only check that sends nothing. */
  knock(url: URL, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      const socket = this.#open(url);
      const end = (error?: Error) => {
        signal.removeEventListener('abort', stop);
        socket.destroy();
        error === undefined ? resolve() : reject(error);
      };
      const stop = () => end(signal.reason as Error);
      signal.addEventListener('abort', stop, { once: true });
      socket.on('error', end);
      socket.once('close', () => end(new Error('The connection was closed at once.')));
      socket.once(url.protocol === 'https:' ? 'secureConnect' : 'connect', () => end());
    });
  }

  #open(url: URL): Socket {
    const { lookup, tls } = this.#options;
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const secure = url.protocol === 'https:';
    const port = Number(url.port) || (secure ? 443 : 80);
    if (!secure) return openTcp({ host, port, lookup });
    // An IP address must not be sent as a server name.
    return openTls({ ...(isIP(host) === 0 && { servername: host }), ...tls, host, port, lookup });
  }

  destroy(): void {
    for (const { pooled, fresh } of this.#agents.values()) {
      pooled.destroy();
      fresh.destroy();
    }
    this.#agents.clear();
  }
}

/** `maxFreeSockets` counts per host: with a thousand customers that would be no limit. */
function withIdleLimit(agent: HttpAgent): HttpAgent {
  const keep = agent.keepSocketAlive.bind(agent);
  agent.keepSocketAlive = (socket) => {
    const idle = Object.values(agent.freeSockets).reduce((sum, sockets) => sum + (sockets?.length ?? 0), 0);
    return idle < idleMax && keep(socket);
  };
  return agent;
}
