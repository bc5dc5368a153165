import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { Message } from '../publisher.ts';

/** They belong to the connection, or frame the body: a message that could set them could smuggle a second request. */
const connectionHeaders = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

const ownHeaders = new Set(['webhook-id', 'webhook-timestamp', 'webhook-signature']);

/** Headers that cannot be sent. The message says which one and why. */
export class IllegalHeader extends Error {
  override readonly name = 'IllegalHeader';
}

/**
 * The headers of a message as they travel, by lower-case name, with `extra` over those of the message. Throws
 * `IllegalHeader` rather than leave one out.
 */
export function requestHeaders(message: Message, extra: Readonly<Record<string, string>>): Record<string, string> {
  if (typeof message.contentType !== 'string') throw new IllegalHeader('The content type is not a text.');
  const headers: Record<string, string> = {
    'user-agent': 'postcommit',
    ...checkedHeaders(message.headers),
    ...extra,
    ...checkedHeaders({ 'webhook-id': message.eventId }, new Set()),
  };
  const contentType = headerValue('content-type', message.contentType);
  if ((headers['content-type'] ?? contentType) !== contentType) {
    throw new IllegalHeader(`The header content-type contradicts the serializer, which says ${contentType}.`);
  }
  return { ...headers, 'content-type': contentType };
}

/** Lower-case names, and values that HTTP can carry. Of names that differ only in case the last one counts. */
export function checkedHeaders(
  given: Readonly<Record<string, unknown>>,
  reserved: ReadonlySet<string> = ownHeaders,
): Record<string, string> {
  // Headers come from JSON, where even __proto__ is a name like any other.
  const headers: Record<string, string> = Object.create(null);
  for (const [written, value] of Object.entries(given)) {
    const name = written.toLowerCase();
    const shown = JSON.stringify(written.slice(0, 100));
    try {
      validateHeaderName(name);
    } catch {
      throw new IllegalHeader(`The header name ${shown} is not allowed in HTTP.`);
    }
    if (connectionHeaders.has(name)) throw new IllegalHeader(`The header ${shown} belongs to the connection.`);
    if (reserved.has(name)) throw new IllegalHeader(`The header ${shown} is set by the webhook publisher itself.`);
    headers[name] = headerValue(name, value);
  }
  return headers;
}

function headerValue(name: string, value: unknown): string {
  if (typeof value !== 'string') {
    throw new IllegalHeader(`The value of the header ${JSON.stringify(name)} is not a text but ${kindOf(value)}.`);
  }
  try {
    const encoded = /[^\0-\x7f]/.test(value) ? asAscii(value) : value;
    validateHeaderValue(name, encoded);
    return encoded;
  } catch {
    throw new IllegalHeader(`The value of the header ${JSON.stringify(name)} has characters not allowed in HTTP.`);
  }
}

/**
 * HTTP has no agreed encoding beyond ASCII. Percent-encoded UTF-8 is what CloudEvents does, and passes every proxy. The
 * percent sign is encoded along, so that decoding gives the text back.
 */
function asAscii(value: string): string {
  return value.replace(/[^\0-\x7f]+|%/g, (part) => encodeURIComponent(part));
}

function kindOf(value: unknown): string {
  return value === null ? 'null' : Array.isArray(value) ? 'a list' : typeof value;
}
