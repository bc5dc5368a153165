import type { OutboxAdmin } from '../admin/admin.ts';
import type { BulkOptions } from '../admin/chunks.ts';
import type { DeadLetterTarget, ReplayTarget, SearchFilter, UndeliveredTarget } from '../admin/filters.ts';
import { PostcommitError } from '../errors.ts';
import type { DashboardUser } from './authentication.ts';
import type { EventStory } from './event-story.ts';
import { toStory } from './event-story.ts';
import type { Operations } from './operations.ts';
import type { Redaction } from './redaction.ts';

/** What a route works with. `admin` acts for the user, with the reason of the request. */
export interface RouteInput {
  admin: OutboxAdmin;
  outbox: string;
  user: DashboardUser;
  /** Parts of the path. */
  params: Readonly<Record<string, string>>;
  /** The JSON body; `{}` for GET. */
  body: Readonly<Record<string, unknown>>;
  operations: Operations;
  redaction: Redaction;
  /** Sends the JSON text that `read` returns as a file. */
  download(read: () => Promise<{ name: string; text: string }>): Promise<Response>;
}

export interface DashboardRoute {
  method: 'GET' | 'POST';
  /** Below `/api/:outbox`. */
  path: string;
  /** Whether it changes anything: readers get 403. */
  changes: boolean;
  /** Whether it reads or writes a payload, of which only a few fit into memory at once. */
  hasPayload: boolean;
  handle(input: RouteInput): Promise<unknown>;
}

const read = (method: DashboardRoute['method'], path: string, handle: DashboardRoute['handle']): DashboardRoute => ({
  method,
  path,
  changes: false,
  hasPayload: false,
  handle,
});
const change = (path: string, handle: DashboardRoute['handle']): DashboardRoute => ({
  method: 'POST',
  path,
  changes: true,
  hasPayload: false,
  handle,
});
const withPayload = (route: DashboardRoute): DashboardRoute => ({ ...route, hasPayload: true });

/**
 * The routes of an outbox. Searches are POST with the filter in the body: headers and error texts do not belong in URLs, which
 * servers log. The answers are those of `outbox.admin` and `postcommit --json`.
 */
export const routes: readonly DashboardRoute[] = [
  read('POST', '/search', search),
  withPayload(read('GET', '/events/:id', story)),
  // Not withPayload: download() takes the slot, and another one until the file is sent.
  read('GET', '/events/:id/payload', payload),
  read('POST', '/dead-letters', ({ admin, body }) => admin.deadLetters(toFilter(body))),
  read('GET', '/dead-letters/groups', async ({ admin }) => ({ groups: await admin.deadLetterGroups() })),
  read('POST', '/dead-letters/count', ({ admin, body }) => admin.countDeadLetters(toFilter(body) as DeadLetterTarget)),
  read('GET', '/blocked', async ({ admin }) => ({ blocked: await admin.blockedAggregates() })),
  // Not part of the overview: a year of partitions takes a tenth of a second, and they change once a day.
  read('GET', '/partitions', ({ admin }) => admin.partitions.list()),
  read('GET', '/doctor', ({ admin }) => admin.doctor()),
  read('POST', '/audit', ({ admin, body }) => admin.audit(body)),
  read('GET', '/operations/:id', async ({ operations, params, outbox }) => {
    const operation = operations.find(params.id ?? '');
    if (operation === undefined || operation.outbox !== outbox) {
      throw new PostcommitError(
        'POSTCOMMIT_E_NOT_FOUND',
        'No operation has this id: it ended a while ago, or the dashboard was restarted.',
      );
    }
    return operation;
  }),
  change('/dead-letters/retry', (input) => run(input, 'retry')),
  change('/dead-letters/discard', (input) => run(input, 'discard')),
  change('/events/replay', (input) => run(input, 'replay')),
  change('/events/cancel', (input) => run(input, 'cancel')),
  change('/events/make-due', (input) => run(input, 'makeDue')),
  withPayload(change('/events/:id/edit-and-retry', editAndRetry)),
  change('/prune', async ({ admin, body, outbox, user, operations }) => {
    const olderThanMs = body.olderThanMs as number;
    if (body.dryRun === true) return admin.prune({ olderThanMs, dryRun: true });
    return operations.start({ outbox, action: 'prune', by: user.by }, async (options) => {
      const { events, interrupted } = await admin.prune({ olderThanMs, ...options });
      return { count: events, ...(interrupted && { interrupted }) };
    });
  }),
  change('/destinations/pause', ({ admin, body }) => admin.pauseDestination(name(body))),
  change('/destinations/resume', ({ admin, body }) => admin.resumeDestination(name(body))),
  change('/queues/pause', ({ admin, body }) => admin.pauseQueue(name(body))),
  change('/queues/resume', ({ admin, body }) => admin.resumeQueue(name(body))),
  change('/operations/:id/interrupt', async ({ operations, params }) => operations.interrupt(params.id ?? '')),
];

async function search({ admin, body, redaction }: RouteInput): Promise<unknown> {
  const filter = toFilter(body) as SearchFilter;
  // The result would tell whether a guess of the hidden value is right.
  if (redaction.hidesHeader(String(filter.header?.[0] ?? ''))) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_FILTER', 'This header is redacted, so it cannot be searched by.');
  }
  return admin.search(filter);
}

async function story({ admin, params, redaction }: RouteInput): Promise<EventStory> {
  const event = await admin.find(params.id ?? '');
  if (event === undefined) throw new PostcommitError('POSTCOMMIT_E_NOT_FOUND');
  return toStory(event, redaction);
}

/** The payload as a file, for those that are too long for the page: up to 16,777,216 characters. */
async function payload({ admin, params, redaction, download }: RouteInput): Promise<Response> {
  return download(async () => {
    const event = await admin.find(params.id ?? '');
    if (event === undefined) throw new PostcommitError('POSTCOMMIT_E_NOT_FOUND');
    if (event.payloadCut) throw new PostcommitError('POSTCOMMIT_E_PAYLOAD_CUT');
    return { name: `${event.id}.json`, text: redaction.payload(event.payloadJson).json };
  });
}

async function editAndRetry({ admin, params, body, redaction }: RouteInput): Promise<unknown> {
  const id = params.id ?? '';
  const event = await admin.find(id);
  if (event !== undefined && toStory(event, redaction).payload.redacted) {
    throw new PostcommitError('POSTCOMMIT_E_PAYLOAD_REDACTED');
  }
  return admin.editAndRetry(id, body.payload);
}

type BulkAction = 'retry' | 'discard' | 'replay' | 'cancel' | 'makeDue';

async function run({ admin, body, outbox, user, operations }: RouteInput, action: BulkAction): Promise<unknown> {
  const target = toFilter((body.target ?? {}) as Record<string, unknown>);
  const after = body.after === undefined ? {} : { after: body.after as string };
  const calls: Record<
    BulkAction,
    (options: BulkOptions) => Promise<{ count: number; interrupted?: true; next?: string }>
  > = {
    retry: (options) => admin.retry(target as DeadLetterTarget, options),
    discard: (options) => admin.discard(target as DeadLetterTarget, options),
    replay: (options) => admin.replay(target as ReplayTarget, { ...options, ...after }),
    cancel: (options) => admin.cancel(target as UndeliveredTarget, options),
    makeDue: (options) => admin.makeDue(target as UndeliveredTarget, options),
  };
  return operations.start({ outbox, action, by: user.by }, calls[action]);
}

/** Times are ISO texts in JSON; the filters of `outbox.admin` take dates. */
function toFilter(body: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { from, to, ...rest } = body;
  const time = (value: unknown) => (typeof value === 'string' ? new Date(value) : value);
  return { ...rest, ...(from !== undefined && { from: time(from) }), ...(to !== undefined && { to: time(to) }) };
}

function name(body: Readonly<Record<string, unknown>>): string {
  return body.name as string;
}
