import type { FetchHandler } from '../http/serve.ts';
import type { Metrics } from '../metrics/metrics.ts';

/** What probes ask a relay. */
export interface ProbedRelay {
  state: string;
  /** Its fencing token, while it is registered. */
  token: string | undefined;
  connected: boolean;
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
  status: () => ProbedRelay,
  metrics: Metrics | undefined,
  others: FetchHandler = () => text(404, 'not found: /livez, /readyz and /metrics are served here\n'),
): FetchHandler {
  return (request) => {
    const { pathname } = new URL(request.url);
    const endpoint = endpoints[pathname];
    if (endpoint === undefined) return others(request);
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      return text(405, 'method not allowed\n', { allow: 'GET, HEAD' });
    }
    return endpoint(status, metrics);
  };
}

/** Also what the deployment files in ops/ ask for. */
export const endpointPaths = ['/livez', '/readyz', '/metrics'] as const;

type Endpoint = (status: () => ProbedRelay, metrics: Metrics | undefined) => Response;

const endpoints: Partial<Record<string, Endpoint>> = {
  '/livez': () => text(200, 'ok\n'),
  '/readyz': (status) => {
    const reason = notReadyBecause(status());
    return reason === undefined ? text(200, 'ok\n') : text(503, `${reason}\n`);
  },
  '/metrics': (_status, metrics) =>
    metrics === undefined
      ? text(404, 'this relay has no metrics: pass the option metrics\n')
      : text(200, metrics.text(), { 'content-type': metrics.contentType }),
} satisfies Record<(typeof endpointPaths)[number], Endpoint>;

function notReadyBecause({ state, token, connected }: ProbedRelay): string | undefined {
  if (state !== 'running') return `the relay is ${state}`;
  if (!connected) return 'the database is unreachable';
  return token === undefined ? 'the relay has lost its lease and registers again' : undefined;
}

function text(status: number, body: string, headers: Record<string, string> = {}): Response {
  return new Response(body, {
    status,
    headers: { 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store', ...headers },
  });
}
