import { Hono } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import { getPath } from 'hono/utils/url';
import type { OutboxAdmin } from '../admin/admin.ts';
import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import type { RequestConnection } from '../http/serve.ts';
import { unknownOption } from '../suggest.ts';
import { assetResponse } from './assets.ts';
import type { Authenticated, AuthenticationOptions, DashboardRole, DashboardUser } from './authentication.ts';
import { Authentication } from './authentication.ts';
import { ClientFacts } from './client-facts.ts';
import type { Health } from './health.ts';
import type { LiveMessage } from './live.ts';
import { LiveFeed } from './live.ts';
import { Operations } from './operations.ts';
import { OverviewReader } from './overview.ts';
import { PayloadLimiter } from './payload-limiter.ts';
import type { RedactionRules } from './redaction.ts';
import { Redaction } from './redaction.ts';
import { describeError, isOurs, refuse, refuseWith, requestHeader, statusOf, writeError } from './refusals.ts';
import type { DashboardRoute, RouteInput } from './routes.ts';
import { routes } from './routes.ts';

export interface DashboardOptions extends AuthenticationOptions {
  /** The outboxes that it shows, by a name of your choice. */
  outboxes: Readonly<Record<string, OutboxAdmin>>;
  /**
   * Lets everyone in who can reach it: only for a server on loopback, or behind a proxy that authenticates. Requests must then
   * name the host `localhost`, `127.0.0.1` or `[::1]`, so that no other site can reach it through the operator's browser.
   * Default `false`.
   */
  open?: boolean;
  /** All users are readers. Default `false`. */
  readOnly?: boolean;
  /** What payloads and headers hide. */
  redact?: RedactionRules;
  /**
   * How many proxies every request passes before it gets here. Each must append the address that it was called from to
   * X-Forwarded-For, and the first one must set X-Forwarded-Proto. The dashboard then counts wrong tokens by the address of the
   * client, and its cookie is Secure where the browser used HTTPS. Too high a number lets clients choose their address.
   * Default 0: both headers are ignored.
   */
  trustedProxies?: number;
  /** The path that it is mounted at in a server of your own, e.g. `/postcommit`. Default: none. */
  basePath?: string;
  /** Called with an error that is not the user's mistake; the user sees only that there was one. Default: it is written to stderr. */
  onError?: (error: unknown) => void;
  /** Where the traces of events are, with `{traceId}` in it, e.g. `https://traces.example/trace/{traceId}`. Default: none. */
  traceUrl?: string;
}

/** What the app knows about its user. */
export interface Me {
  role: DashboardRole;
  by: string;
  outboxes: string[];
  /** Whether a session can be ended. */
  signedIn: boolean;
  traceUrl?: string;
}

/** One of several outboxes at a glance. */
export interface OutboxGlance {
  name: string;
  /** `unreachable`: its state could not be read. */
  level: Health['level'] | 'unreachable';
  /** Its health in one sentence, or why it could not be read. */
  sentence: string;
}

export interface Dashboard {
  /**
   * Returns the response to a request. Mount it into a server of your own. `nodeListener` passes the connection. Pass
   * `{ remoteAddress }` elsewhere: wrong tokens are counted by it, and without it all clients count as one.
   */
  fetch(request: Request, connection?: RequestConnection): Promise<Response>;
  /** Ends live responses, and interrupts operations after their current chunk. */
  close(): void;
}

/** A record, so that the compiler reports an option that is missing here. */
const optionNameSet: Record<keyof DashboardOptions, true> = {
  outboxes: true,
  token: true,
  readOnlyToken: true,
  authenticate: true,
  open: true,
  by: true,
  readOnly: true,
  redact: true,
  traceUrl: true,
  trustedProxies: true,
  basePath: true,
  onError: true,
};
export const dashboardOptionNames: readonly string[] = Object.keys(optionNameSet);

type Env = { Bindings: RequestConnection; Variables: { user: DashboardUser } };

const payloadBodyBytesMax = 8_388_608;
/** A filter, or some thousand ids. */
const bodyBytesMax = 1_048_576;
const tokenBodyBytesMax = 4_096;
const viewersMax = 100;
const localHosts = ['localhost', '127.0.0.1', '[::1]'];
const refusals = { missing: 401, wrong: 401, locked: 429 } as const;

/** The dashboard as a fetch handler: the browser app and its API. Fails with POSTCOMMIT_E_DASHBOARD_NO_AUTH if it would be open to everyone. */
export function createDashboard(options: DashboardOptions): Dashboard {
  checkDashboardOptions(options, 'createDashboard()', dashboardOptionNames);
  const authentication = new Authentication(options);
  if (!authentication.isRequired && options.open !== true) throw new PostcommitError('POSTCOMMIT_E_DASHBOARD_NO_AUTH');
  const basePath = checkBasePath(options.basePath);
  const traceUrl = checkTraceUrl(options.traceUrl);
  const redaction = new Redaction(options.redact);
  const clients = new ClientFacts(options.trustedProxies);
  const payloads = new PayloadLimiter();
  const { onError = writeError } = options;
  const report = (error: unknown) => {
    if (!isOurs(error)) onError(error);
    return describeError(error);
  };
  const operations = new Operations(report);
  const feeds = new Map(
    Object.entries(options.outboxes).map(([name, admin]) => [name, new LiveFeed(new OverviewReader(admin), report)]),
  );
  const app = new Hono<Env>({ getPath: (request) => getPath(request).slice(basePath.length) || '/' });

  app.use(async (c, next) => {
    await next();
    for (const [name, value] of securityHeaders) c.res.headers.set(name, value);
  });
  app.onError((error) => {
    const described = report(error);
    return refuseWith(statusOf(described.code), described);
  });
  app.notFound(() => refuse(404, 'NOT_FOUND'));

  const cookieScope = (request: Request) => ({ path: `${basePath}/`, secure: clients.isSecure(request) });
  const limit = (maxSize: number) => bodyLimit({ maxSize, onError: () => refuse(413, 'TOO_LARGE') });
  app.post('/api/session', limit(tokenBodyBytesMax), async (c) => {
    if (isForeign(c.req.raw)) return refuse(403, 'FOREIGN_REQUEST');
    const { token } = await readBody(c.req.raw);
    const result = authentication.checkToken(String(token ?? ''), clients.addressOf(c.req.raw, c.env));
    if ('refused' in result) return refuse(refusals[result.refused], 'UNAUTHENTICATED');
    c.header('set-cookie', authentication.sessionCookie(result.user.role, cookieScope(c.req.raw)));
    return c.json(result.user);
  });
  app.post('/api/session/end', (c) => {
    c.header('set-cookie', authentication.endSessionCookie(cookieScope(c.req.raw)));
    return c.json({ done: true });
  });
  app.use('/api/*', async (c, next) => {
    if (!authentication.isRequired && !localHosts.includes(hostOf(c.req.raw))) return refuse(403, 'HOST');
    const result: Authenticated = await authentication.check(c.req.raw, clients.addressOf(c.req.raw, c.env));
    if ('refused' in result) return refuse(refusals[result.refused], 'UNAUTHENTICATED');
    const { by, role } = result.user;
    c.set('user', { by, role: options.readOnly ? 'reader' : role });
    return next();
  });

  app.get('/api/me', (c) => {
    const signedIn = authentication.usesTokens;
    const known: Me = { ...c.get('user'), outboxes: [...feeds.keys()], signedIn, ...(traceUrl && { traceUrl }) };
    return c.json(known);
  });
  app.get('/api/outboxes', async (c) => c.json({ outboxes: await Promise.all([...feeds].map(glanceAt)) }));
  app.get('/api/:outbox/live', (c) => {
    const feed = feeds.get(c.req.param('outbox'));
    if (feed === undefined) return refuse(404, 'NO_SUCH_OUTBOX');
    if (feed.viewers >= viewersMax) return refuse(503, 'TOO_MANY_VIEWERS');
    return liveResponse(feed, c.req.raw.signal);
  });
  for (const route of routes) {
    const path = `/api/:outbox${route.path}`;
    // Before any body is read: what is refused must not fill the memory.
    app.on(route.method, path, async (c, next) => {
      if (!Object.hasOwn(options.outboxes, c.req.param('outbox') ?? '')) return refuse(404, 'NO_SUCH_OUTBOX');
      const problem = checkRequest(route, c.get('user'), c.req.raw);
      if (problem !== undefined) return problem;
      return route.hasPayload && route.method === 'POST' ? payloads.receive(next) : next();
    });
    app.on(route.method, path, limit(route.hasPayload ? payloadBodyBytesMax : bodyBytesMax), async (c) => {
      const { outbox = '', ...params } = c.req.param() as Record<string, string>;
      const admin = options.outboxes[outbox] as OutboxAdmin;
      const user = c.get('user');
      const download: RouteInput['download'] = (read) => payloads.download(c.req.raw, read);
      const { reason, ...body } = await readBody(c.req.raw);
      const acting = route.changes
        ? admin.as({ by: user.by, ...(reason !== undefined && { reason: reason as string }) })
        : admin;
      const context = { outbox, user, operations, redaction, download };
      const handle = () => route.handle({ ...context, admin: acting, params, body });
      const result = route.hasPayload ? await payloads.read(c.req.raw.signal, handle) : await handle();
      return result instanceof Response ? result : c.json((result ?? { done: true }) as object);
    });
  }
  app.get('/:file?', async (c) => (await assetResponse(c.req.param('file') ?? '', c.req.raw)) ?? c.notFound());
  return {
    fetch: async (request, connection = {}) => {
      const path = new URL(request.url).pathname;
      // The addresses in the page are relative to its folder.
      if (basePath !== '' && path === basePath)
        return new Response(null, { status: 308, headers: { location: `${basePath}/` } });
      return path.startsWith(`${basePath}/`)
        ? app.fetch(request, connection)
        : new Response('not found\n', { status: 404 });
    },
    close: () => {
      for (const feed of feeds.values()) feed.close();
      operations.close();
    },
  };
}

async function glanceAt([name, feed]: [string, LiveFeed]): Promise<OutboxGlance> {
  const message = await feed.glance();
  if ('error' in message) return { name, level: 'unreachable', sentence: message.error.message };
  const { level, sentence } = message.overview.health;
  return { name, level, sentence };
}

const securityHeaders: [string, string][] = [
  [
    'content-security-policy',
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  ],
  ['x-content-type-options', 'nosniff'],
  ['referrer-policy', 'no-referrer'],
  ['cache-control', 'no-store'],
];

/** A browser says where a request comes from. A program does not, and has no cookies of the operator. */
function isForeign(request: Request): boolean {
  const site = request.headers.get('sec-fetch-site');
  return request.headers.get(requestHeader) === null || (site !== null && site !== 'same-origin' && site !== 'none');
}

function checkRequest(route: DashboardRoute, user: DashboardUser, request: Request): Response | undefined {
  if (route.method === 'GET') return undefined;
  if (isForeign(request)) return refuse(403, 'FOREIGN_REQUEST');
  return route.changes && user.role !== 'operator' ? refuse(403, 'READ_ONLY') : undefined;
}

async function readBody(request: Request): Promise<Record<string, unknown>> {
  if (request.method === 'GET') return {};
  const text = await request.text();
  let body: unknown;
  try {
    body = text === '' ? {} : JSON.parse(text);
  } catch (cause) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_FILTER', 'The body is not JSON.', { cause });
  }
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_FILTER', 'The body must be a JSON object.');
  }
  return body as Record<string, unknown>;
}

/** Server-sent events: the state of the outbox every two seconds, until the client disconnects. */
function liveResponse(feed: LiveFeed, signal: AbortSignal): Response {
  let stop = () => {};
  const stream = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        const encoder = new TextEncoder();
        const show = (message: LiveMessage) => {
          // A client that reads too slowly misses states: each one is complete.
          if ((controller.desiredSize ?? 0) > 0)
            controller.enqueue(encoder.encode(`data: ${JSON.stringify(message)}\n\n`));
        };
        stop = feed.watch({ show, end: () => controller.close() });
        signal.addEventListener('abort', () => stop(), { once: true });
      },
      cancel: () => stop(),
    },
    { highWaterMark: 4 },
  );
  return new Response(stream, { headers: { 'content-type': 'text/event-stream' } });
}

function hostOf(request: Request): string {
  return (request.headers.get('host') ?? new URL(request.url).host).replace(/:\d+$/, '').toLowerCase();
}

/** A misspelt `redact`, `readOnly` or `token` would protect nothing. */
export function checkDashboardOptions(options: object, of: string, known: readonly string[]): void {
  const unknown = unknownOption(options, known, of);
  if (unknown !== undefined) throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', unknown);
}

function checkBasePath(path = ''): string {
  if (typeof path === 'string' && /^(\/[\w.~-]+)*$/.test(path)) return path;
  throw new PostcommitError(
    'POSTCOMMIT_E_BAD_OPTION',
    `basePath must be a path without a slash at its end, e.g. /postcommit. Got ${shown(path)}.`,
  );
}

function checkTraceUrl(url: string | undefined): string | undefined {
  if (url === undefined || (typeof url === 'string' && /^https?:\/\/.*\{traceId\}/.test(url))) return url;
  throw new PostcommitError(
    'POSTCOMMIT_E_BAD_OPTION',
    `traceUrl must be an http or https address with {traceId} in it. Got ${shown(url)}.`,
  );
}
