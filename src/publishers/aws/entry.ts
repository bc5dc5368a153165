import { createHash } from 'node:crypto';
import { cutReason } from '../failure.ts';
import type { Message, PublishOutcome } from '../publisher.ts';

/** A message as SQS and SNS take it, except for the name of the body, which differs. */
export interface AwsEntry {
  readonly body: string;
  readonly attributes: Record<string, AwsAttribute>;
  /** FIFO queues and topics only. */
  readonly groupId: string | undefined;
  readonly deduplicationId: string | undefined;
  /** As AWS counts them: the body, and of each attribute name, type and value. */
  readonly bytes: number;
}

export interface AwsAttribute {
  readonly DataType: 'String';
  readonly StringValue: string;
}

/** SQS's limit. SNS has none, but loses a message with more on its way to a queue with raw delivery. */
const attributesMax = 10;
const moreHeaders = 'more-headers';

/** The characters that AWS allows: those of XML. */
const forbidden = /[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/u;
const forbiddenEverywhere = new RegExp(forbidden, 'gu');
// `__proto__` fits AWS's rules, but not every version of the SDK sends an attribute of that name.
const attributeName = /^(?!aws\.|amazon\.|__proto__$)[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*$/i;
const attributeNameCharactersMax = 256;
const groupIdPattern = /^[!-~]{1,128}$/;

export function isFifo(target: string): boolean {
  return target.endsWith('.fifo');
}

/** The entry, or why AWS can never take this message. It is checked here: one bad entry may fail a whole request. */
export function toEntry(message: Message, fifo: boolean, messageBytesMax: number): AwsEntry | PublishOutcome {
  const wrong = whatIsWrong(message);
  if (wrong !== undefined) return { kind: 'rejected', reason: cutReason(wrong) };
  const { body: content, key, eventId } = message;
  const body = typeof content === 'string' ? content : toBase64(content);
  const attributes = toAttributes(message);
  let bytes = Buffer.byteLength(body);
  for (const [name, { DataType, StringValue }] of Object.entries(attributes)) {
    bytes += name.length + DataType.length + Buffer.byteLength(StringValue);
  }
  if (bytes > messageBytesMax) {
    return { kind: 'rejected', reason: `The message has ${bytes} bytes; messageBytesMax allows ${messageBytesMax}.` };
  }
  const groupId = fifo ? toGroupId(key ?? eventId) : undefined;
  return { body, attributes, groupId, deduplicationId: fifo ? message.deduplicationId : undefined, bytes };
}

function whatIsWrong({ body, key, headers, eventType, contentType }: Message): string | undefined {
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) return `The body is not a text but ${typeof body}.`;
  if (body.length === 0) return 'The body is empty, which AWS does not take.';
  const character = typeof body === 'string' ? forbidden.exec(body)?.[0] : undefined;
  if (character !== undefined) {
    const code = character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, '0');
    return `The body has the character U+${code}, which AWS does not take.`;
  }
  const facts = { 'event type': eventType, 'content type': contentType, key: key ?? '' };
  const named = Object.entries(headers).map(([name, value]) => [`header ${name}`, value] as const);
  // Typed as strings; JavaScript callers may pass other values.
  const wrong = [...Object.entries(facts), ...named].find(([, value]) => typeof value !== 'string');
  return wrong && `The ${wrong[0]} is not a text but ${typeof wrong[1]}.`;
}

/**
 * The event's facts first, then `traceparent`, which tracing libraries read, then the other headers by name as far as there is room
 * and AWS allows them; the rest as JSON in one.
 */
function toAttributes({ eventId, eventType, key, contentType, body, headers }: Message): Record<string, AwsAttribute> {
  const facts: Record<string, string> = { 'event-id': eventId, 'event-type': eventType, 'content-type': contentType };
  if (key !== null) facts['event-key'] = key;
  if (typeof body !== 'string') facts['body-encoding'] = 'base64';
  const { traceparent } = headers;
  const inOrder = traceparent === undefined ? headers : { traceparent, ...headers };
  const fitting = new Map<string, string>();
  const rest = new Map<string, string>();
  for (const [name, value] of [...Object.entries(facts), ...Object.entries(inOrder)]) {
    // The headers of the envelope contain some of the same facts.
    if (fitting.get(name) === value) continue;
    const fits = isAttribute(name, value) && !fitting.has(name);
    (fits ? fitting : rest).set(name, value);
  }
  const room = rest.size > 0 || fitting.size > attributesMax ? attributesMax - 1 : attributesMax;
  const attributes: Record<string, AwsAttribute> = {};
  for (const [name, value] of fitting) {
    if (Object.keys(attributes).length < room) attributes[name] = toAttribute(value);
    else rest.set(name, value);
  }
  if (rest.size > 0) attributes[moreHeaders] = toAttribute(escapeForbidden(Object.fromEntries(rest)));
  return attributes;
}

function isAttribute(name: string, value: string): boolean {
  if (name === moreHeaders || name.length > attributeNameCharactersMax || !attributeName.test(name)) return false;
  return value !== '' && !forbidden.test(value);
}

function toAttribute(value: string): AwsAttribute {
  return { DataType: 'String', StringValue: value };
}

function escapeForbidden(headers: Record<string, string>): string {
  return JSON.stringify(headers).replace(
    forbiddenEverywhere,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** A key that is too long, or has characters that AWS does not take, is replaced by its hash: still one group. */
function toGroupId(key: string): string {
  return groupIdPattern.test(key) ? key : createHash('sha256').update(key).digest('hex');
}

function toBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');
}
