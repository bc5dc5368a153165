import { isIP } from 'node:net';
import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import type { RequestConnection } from '../http/serve.ts';

const trustedProxiesMax = 10;

/**
 * What is known about the client of a request. X-Forwarded-For and X-Forwarded-Proto count only where proxies are trusted: a client
 * can send any value, and each trusted proxy appends the address that it was called from.
 */
export class ClientFacts {
  readonly #trustedProxies: number;

  constructor(trustedProxies = 0) {
    if (!Number.isInteger(trustedProxies) || trustedProxies < 0 || trustedProxies > trustedProxiesMax) {
      throw new PostcommitError(
        'POSTCOMMIT_E_BAD_OPTION',
        `trustedProxies must be a whole number from 0 to ${trustedProxiesMax}. Got ${shown(trustedProxies)}.`,
      );
    }
    this.#trustedProxies = trustedProxies;
  }

  /** The address to count wrong tokens by. `undefined`: the server that the dashboard is mounted in passes none. */
  addressOf(request: Request, connection: RequestConnection | undefined): string | undefined {
    const peer = connection?.remoteAddress ?? connection?.incoming?.socket?.remoteAddress;
    if (this.#trustedProxies === 0) return peer;
    const hops = listOf(request.headers.get('x-forwarded-for'));
    const hop = withoutPort(hops[Math.max(0, hops.length - this.#trustedProxies)] ?? '');
    return isIP(hop) === 0 ? peer : hop;
  }

  /** Whether the browser used HTTPS, so that it takes a cookie with the attribute Secure. */
  isSecure(request: Request): boolean {
    if (new URL(request.url).protocol === 'https:') return true;
    if (this.#trustedProxies === 0) return false;
    return listOf(request.headers.get('x-forwarded-proto'))[0]?.toLowerCase() === 'https';
  }
}

function listOf(header: string | null): string[] {
  return (header ?? '').split(',').map((each) => each.trim());
}

/** Some proxies append the port, which differs with each connection: 203.0.113.7:49152, [2001:db8::7]:49152. */
function withoutPort(hop: string): string {
  return /^\[([^\]]+)\](?::\d+)?$/.exec(hop)?.[1] ?? /^([\d.]+):\d+$/.exec(hop)?.[1] ?? hop;
}
