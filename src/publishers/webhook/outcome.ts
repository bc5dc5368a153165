import type { IncomingHttpHeaders } from 'node:http';
import { cutReason, isUntrustedCertificate, reasonOf } from '../failure.ts';
import { delivered, type PublishOutcome } from '../publisher.ts';
import { PrivateAddress } from './address.ts';
import { type HttpAnswer, Stopped, TimeUp } from './request.ts';

/** `released` is missing: a request that was answered was sent. */
export type WebhookOutcomeKind = Exclude<PublishOutcome['kind'], 'released'>;

/** What a receiver answered, for `outcomeOf`. */
export interface WebhookResponse {
  readonly status: number;
  readonly headers: Readonly<IncomingHttpHeaders>;
  /** The first 8 KB of the body; less where it was slow. */
  readonly body: string;
  /** As the route's topic or the option `url` has it. */
  readonly url: string;
  readonly eventId: string;
  readonly eventType: string;
}

const outcomeKinds: readonly unknown[] = ['delivered', 'failed', 'rejected', 'unavailable'];

/** What an answer means. `outcomeOf` has the first word. */
export function outcomeOfAnswer(
  answer: HttpAnswer,
  response: WebhookResponse,
  outcomeOf: ((response: WebhookResponse) => WebhookOutcomeKind | undefined) | undefined,
): PublishOutcome {
  let chosen: WebhookOutcomeKind | undefined;
  try {
    chosen = outcomeOf?.(response);
  } catch (error) {
    return { kind: 'failed', reason: clean(`outcomeOf() threw: ${reasonOf(error)}`) };
  }
  if (chosen !== undefined && !outcomeKinds.includes(chosen)) {
    return {
      kind: 'failed',
      reason: clean(
        `outcomeOf() returned ${String(chosen)}. It must return delivered, failed, rejected or unavailable.`,
      ),
    };
  }
  const kind = chosen ?? outcomeOfStatus(answer.status);
  if (kind === 'delivered') return delivered;
  const url = new URL(response.url);
  const reason = clean(`${url.host} ${describe(answer, url)}`);
  if (kind === 'rejected') return { kind, reason };
  const retryAfterMs = retryAfter(answer.headers);
  return { kind, reason, ...(retryAfterMs !== undefined && { retryAfterMs }) };
}

/**
 * Timeout, too early, too many requests: the receiver says itself that later is another matter. A wrong secret, a missing
 * right and a path that is not there yet are faults of the receiver's setup, not of the event.
 */
const laterStatuses = new Set([401, 403, 404, 408, 425, 429]);

function outcomeOfStatus(status: number): WebhookOutcomeKind {
  if (status >= 200 && status <= 299) return 'delivered';
  if (laterStatuses.has(status)) return 'failed';
  return status >= 400 && status <= 499 ? 'rejected' : 'failed';
}

function describe({ status, headers, body }: HttpAnswer, url: URL): string {
  // Without the body, in which most servers quote the address again.
  if (status >= 300 && status <= 399 && headers.location !== undefined) {
    return `answered ${status}, a redirect to ${placeOf(headers.location, url)}, which is not followed. Correct the URL`;
  }
  const said = body.trim() === '' ? '' : `: ${body}`;
  if (status === 410) return `answered 410 Gone: it wants no more of these${said}`;
  return `answered ${status}${said}`;
}

/** Where a redirect leads, without what may be a token: its path and query are mostly those of the request. */
function placeOf(location: string, from: URL): string {
  const to = URL.canParse(location, from.href) ? new URL(location, from) : undefined;
  if (to === undefined || to.host === '') return 'an invalid URL';
  if (to.protocol !== from.protocol) return `${to.protocol}//${to.host}`;
  return to.host === from.host ? 'another URL of the same host' : to.host;
}

/** Milliseconds until the receiver wants to be asked again; both forms of the header. The relay caps it. */
export function retryAfter(headers: IncomingHttpHeaders): number | undefined {
  const value = headers['retry-after']?.trim() ?? '';
  const ms = /^\d{1,15}$/.test(value) ? Number(value) * 1_000 : dateOf(value) - nowOf(headers);
  return ms > 0 ? ms : undefined;
}

/** The receiver's own clock where it tells it: then it does not matter that the clocks differ. */
function nowOf(headers: IncomingHttpHeaders): number {
  const told = dateOf(headers.date ?? '');
  return Number.isNaN(told) ? Date.now() : told;
}

/** Date.parse alone takes `-5` and much else for a date. One of the three forms of HTTP has no zone, and means GMT. */
function dateOf(text: string): number {
  if (!/^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? /.test(text)) return Number.NaN;
  return Date.parse(text.endsWith(' GMT') ? text : `${text} GMT`);
}

/** What it means that there was no answer. */
export function outcomeOfFailure(
  error: unknown,
  url: URL,
  onConnectionError: 'failed' | 'unavailable',
): PublishOutcome {
  if (error instanceof PrivateAddress) {
    return { kind: 'rejected', reason: clean(`Not sent: ${error.message}, and the URL comes from the route.`) };
  }
  // Not known to be delivered, and for no fault of the receiver.
  if (error instanceof Stopped) return { kind: 'unavailable', reason: error.message };
  return { kind: onConnectionError, reason: clean(failureText(error, url)) };
}

export function failureText(error: unknown, url: URL): string {
  const { code = '' } = error as NodeJS.ErrnoException;
  const words = reasonOf(error);
  if (error instanceof TimeUp || error instanceof Stopped)
    return `${url.host} accepted no connection or did not answer. ${words}`;
  if (isUntrustedCertificate(error)) return `The certificate of ${url.host} is not trusted (${code}): ${words}`;
  if (code === 'ECONNREFUSED') return `${url.host} refused the connection.`;
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return `The name ${url.hostname} cannot be resolved (${code}).`;
  if (code === 'ECONNRESET' || code === 'EPIPE')
    return `${url.host} broke the connection before it answered (${code}).`;
  if (code.startsWith('HPE_')) return `${url.host} did not answer in HTTP (${code}): ${words}`;
  return `The request to ${url.host} failed: ${words}${code === '' || words.includes(code) ? '' : ` (${code})`}`;
}

/** A receiver's words go into logs and terminals: no control characters, one line, bounded. */
export function clean(text: string): string {
  const line = text
    .slice(0, 10_000)
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\s]+/gu, ' ')
    .trim();
  return cutReason(line).toWellFormed();
}
