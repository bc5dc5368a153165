import type { FetchHandler } from '../http/serve.ts';

/** What probes ask a relay. */
export interface ProbedRelay {
  state: string;
  /** Its fencing token, while it is registered. */
  token: string | undefined;
  connected: boolean;
}

/** What `/metrics` serves: a `Metrics`, or those of several outboxes together. */
export interface ServedMetrics {
  contentType: string;
  text(): string;
}

export interface Readiness {
  ready: boolean;
  /** `ok`, or why not. */
  reason: string;
}

/**
 * The endpoints of a relay, without payloads and without authentication:
 * - `/livez`: 200 while the event loop responds. An unreachable database is no reason to restart the process.
 * - `/readyz`: 200 while the relay is registered and connected, otherwise 503 and the reason.
 * - `/metrics`: the text format of Prometheus.
 *
 * `others` answers any other path; without it that is 404.
 */
export function relayEndpoints(
  readiness: () => Readiness,
  metrics: ServedMetrics | undefined,
  others: FetchHandler = () => text(404, 'not found: /livez, /readyz and /metrics are served here\n'),
): FetchHandler {
  return (request, connection) => {
    const { pathname } = new URL(request.url);
    const endpoint = endpoints[pathname];
    if (endpoint === undefined) return others(request, connection);
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      return text(405, 'method not allowed\n', { allow: 'GET, HEAD' });
    }
    return endpoint(readiness, metrics);
  };
}

/** Also what the deployment files in ops/ ask for. */
export const endpointPaths = ['/livez', '/readyz', '/metrics'] as const;

type Endpoint = (readiness: () => Readiness, metrics: ServedMetrics | undefined) => Response;

const endpoints: Partial<Record<string, Endpoint>> = {
  '/livez': () => text(200, 'ok\n'),
  '/readyz': (readiness) => {
    const { ready, reason } = readiness();
    return text(ready ? 200 : 503, `${reason}\n`);
  },
  '/metrics': (_readiness, metrics) =>
    metrics === undefined
      ? text(404, 'this relay has no metrics: pass the option metrics\n')
      : text(200, metrics.text(), { 'content-type': metrics.contentType }),
} satisfies Record<(typeof endpointPaths)[number], Endpoint>;

/** The readiness of one relay. */
export function readinessOf({ state, token, connected }: ProbedRelay): Readiness {
  if (state !== 'running') return { ready: false, reason: `the relay is ${state}` };
  if (!connected) return { ready: false, reason: 'the database is unreachable' };
  if (token === undefined) return { ready: false, reason: 'the relay has lost its lease and registers again' };
  return { ready: true, reason: 'ok' };
}

/** Of relays of several outboxes, by name: ready when one is, so that an outbox that is down does not hold up a deployment. */
export function readinessOfSeveral(relays: ReadonlyMap<string, ProbedRelay>): Readiness {
  const each = [...relays].map(([name, relay]) => ({ name, ...readinessOf(relay) }));
  return {
    ready: each.some(({ ready }) => ready),
    reason: each.map(({ name, reason }) => `${name}: ${reason}`).join('\n'),
  };
}

function text(status: number, body: string, headers: Record<string, string> = {}): Response {
  return new Response(body, {
    status,
    headers: { 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store', ...headers },
  });
}
