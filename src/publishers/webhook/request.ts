import { type ClientRequest, request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Agents } from './connections.ts';

/** How much of a response's body is kept: enough for a reason. */
const bodyKeptBytesMax = 8_192;
/** A longer body is not read to its end: the connection is closed instead of used again. */
const bodyReadBytesMax = 65_536;
/** The status decides the outcome. A body that takes longer than this is not read. */
const bodyReadMs = 1_000;

export interface HttpRequest {
  url: URL;
  method: 'GET' | 'POST';
  headers: Record<string, string>;
  body?: Uint8Array;
}

export interface HttpAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  /** The beginning of the body, as text. */
  body: string;
}

/**
 * One request and its answer. An idle connection may be closed by the receiver in the moment it is used again, as every
 * restart of it does; that is no failure of the receiver, so the request is then sent once more over a new one.
 */
export async function exchange(request: HttpRequest, agents: Agents, signal: AbortSignal): Promise<HttpAnswer> {
  const sent: { request?: ClientRequest } = {};
  try {
    return await send(request, agents.pooled, signal, sent);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const stale = sent.request?.reusedSocket === true && (code === 'ECONNRESET' || code === 'EPIPE');
    if (!stale || signal.aborted) throw error;
    return send(request, agents.fresh, signal, sent);
  }
}

function send(
  { url, method, headers, body }: HttpRequest,
  agent: Agents['pooled'],
  signal: AbortSignal,
  sent: { request?: ClientRequest },
): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const request = (url.protocol === 'https:' ? httpsRequest : httpRequest)(url, {
      agent,
      method,
      headers: body === undefined ? headers : { ...headers, 'content-length': String(body.length) },
    });
    sent.request = request;
    const stop = () => request.destroy(signal.reason as Error);
    signal.addEventListener('abort', stop, { once: true });
    let answered = false;
    // After an answer an error says only that the receiver did not want the rest of the request, or broke its own body.
    request.on('error', (error) => !answered && reject(error));
    request.once('response', (response) => {
      answered = true;
      readBody(response).then(
        (text) => resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text }),
        reject,
      );
    });
    request.once('close', () => {
      signal.removeEventListener('abort', stop);
      // Neither answer nor error comes when the receiver switches protocols. After an error this is without effect.
      if (!answered) reject(new Error('The connection was closed without an answer.'));
    });
    request.end(body);
  });
}

/** Reads on until the end, a limit or a broken connection, whichever comes first. Never rejects. */
function readBody(response: IncomingMessage): Promise<string> {
  return new Promise((resolve) => {
    const kept: Buffer[] = [];
    let keptBytes = 0;
    let readBytes = 0;
    const finish = () => {
      clearTimeout(timer);
      // Compressed text is not readable, and the request did not ask for it.
      const readable = (response.headers['content-encoding'] ?? 'identity') === 'identity';
      resolve(readable ? Buffer.concat(kept).toString() : '');
    };
    const timer = setTimeout(() => response.destroy(), bodyReadMs);
    response.on('data', (chunk: Buffer) => {
      readBytes += chunk.length;
      if (keptBytes < bodyKeptBytesMax) {
        const part = chunk.subarray(0, bodyKeptBytesMax - keptBytes);
        kept.push(part);
        keptBytes += part.length;
      }
      if (readBytes > bodyReadBytesMax) response.destroy();
    });
    response.on('error', finish);
    response.once('end', finish);
    response.once('close', finish);
  });
}

/** The time limit has passed. */
export class TimeUp extends Error {
  override readonly name = 'TimeUp';
}

/** The caller no longer waits for an answer. */
export class Stopped extends Error {
  override readonly name = 'Stopped';
}

/** Runs `work` with a signal that is aborted with `TimeUp`, or with `Stopped` once the outer one is aborted. */
export async function limited<T>(
  outer: AbortSignal,
  timeoutMs: number,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const limit = new AbortController();
  const stop = () => limit.abort(new Stopped('No answer within the time limit of the relay.'));
  if (outer.aborted) stop();
  const timer = setTimeout(() => limit.abort(new TimeUp(`No answer within ${timeoutMs} ms.`)), timeoutMs);
  outer.addEventListener('abort', stop, { once: true });
  try {
    return await work(limit.signal);
  } finally {
    clearTimeout(timer);
    outer.removeEventListener('abort', stop);
  }
}
