import type { MsgHdrs } from '@nats-io/transport-node';
import { cutReason, reasonOf } from '../failure.ts';
import type { Message, PublishOutcome } from '../publisher.ts';

/** A message in the terms of NATS. */
export interface NatsMessage {
  readonly subject: string;
  readonly body: string | Uint8Array;
  readonly headers: MsgHdrs;
  readonly deduplicationId: string;
}

// The server closes the connection over a line longer than its max_control_line (4,096 bytes unless configured). The
// line also holds the subject for the answer and two numbers.
const subjectBytesMax = 3_800;

// What we set ourselves, in lower case: NATS compares names as they are written, people do not.
const ownHeaders = new Set(['nats-msg-id', 'content-type', 'event-id']);

/** The message as NATS has it, or why it can never be sent. */
export function toNats(message: Message, createHeaders: () => MsgHdrs): NatsMessage | PublishOutcome {
  const refusal = subjectRefusal(message.topic) ?? headerRefusal(message.headers) ?? bodyRefusal(message.body);
  if (refusal !== undefined) return { kind: 'rejected', reason: cutReason(refusal) };
  const headers = createHeaders();
  try {
    for (const [name, value] of Object.entries(message.headers)) {
      if (!ownHeaders.has(name.toLowerCase())) headers.set(name, String(value));
    }
    headers.set('Content-Type', message.contentType);
    headers.set('event-id', message.eventId);
  } catch (error) {
    return { kind: 'rejected', reason: `NATS cannot carry a header: ${reasonOf(error)}` };
  }
  const { topic: subject, body, deduplicationId } = message;
  return { subject, body, headers, deduplicationId };
}

function subjectRefusal(subject: unknown): string | undefined {
  if (typeof subject !== 'string' || subject === '') return 'The subject is empty or no text.';
  if (Buffer.byteLength(subject) > subjectBytesMax) return `The subject is longer than ${subjectBytesMax} bytes.`;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they would end the command in the middle of the subject.
  if (/[\s\u0000-\u001f\u007f]/.test(subject)) return `The subject '${subject}' holds a blank or a control character.`;
  // A publish there is a command to the server, which answers to it as if it had stored something.
  if (/^\$(?:JS|SYS)(?:\.|$)/.test(subject)) return `The subject '${subject}' belongs to the server.`;
  for (const token of subject.split('.')) {
    if (token === '') return `The subject '${subject}' has an empty part.`;
    if (token === '*' || token === '>') return `The subject '${subject}' has a wildcard: one can only subscribe to it.`;
  }
  return undefined;
}

function headerRefusal(headers: Message['headers']): string | undefined {
  for (const [name, value] of Object.entries<unknown>(headers)) {
    if (name === '') return 'A header has no name.';
    // They are commands to the stream: Nats-Rollup deletes what it holds, Nats-Expected-… refuses what is sent.
    if (/^nats-/i.test(name) && !ownHeaders.has(name.toLowerCase())) return `The header ${name} belongs to NATS.`;
    if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') continue;
    return `The header ${name} is not a string (${value === null ? 'null' : typeof value}).`;
  }
  return undefined;
}

function bodyRefusal(body: unknown): string | undefined {
  return typeof body === 'string' || body instanceof Uint8Array ? undefined : 'The body is neither text nor bytes.';
}
