import { cutReason } from '../failure.ts';
import type { Message, PublishOutcome } from '../publisher.ts';
import type { AmqpMessage } from './channel.ts';

interface AmqpDefaults {
  readonly exchange: string;
  readonly mandatory: boolean;
  readonly persistent: boolean;
  readonly messageBytesMax: number;
}

// AMQP's short strings.
const shortBytesMax = 255;

/**
 * The message as AMQP has it, or why it can never be sent. RabbitMQ would close the channel, or the whole connection,
 * over much of what is refused here.
 */
export function toAmqp(message: Message, options: AmqpDefaults): AmqpMessage | PublishOutcome {
  const { exchange = options.exchange, topic, body } = message;
  if (typeof topic !== 'string' || !isShort(topic)) return reject(`The routing key must be a text of up to 255 bytes.`);
  if (typeof exchange !== 'string' || !isShort(exchange))
    return reject('The exchange must be a name of up to 255 bytes.');
  if (typeof message.contentType !== 'string' || !isShort(message.contentType)) {
    return reject('The content type must be a text of up to 255 bytes.');
  }
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) return reject('The body is neither text nor bytes.');
  const content =
    typeof body === 'string' ? Buffer.from(body) : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  if (content.length > options.messageBytesMax) {
    return reject(`The body of ${content.length} bytes is over messageBytesMax (${options.messageBytesMax}).`);
  }
  // Without a prototype: an assignment to `__proto__` would be lost otherwise.
  const headers: Record<string, string> = Object.create(null);
  for (const [name, value] of Object.entries(message.headers)) {
    const refusal = headerRefusal(name, value);
    if (refusal !== undefined) return reject(refusal);
    headers[name] = String(value);
  }
  return {
    exchange,
    routingKey: topic,
    content,
    properties: {
      mandatory: options.mandatory,
      persistent: options.persistent,
      messageId: message.eventId,
      contentType: message.contentType,
      timestamp: Math.floor(message.occurredAtMs / 1_000),
      headers,
      // Only a convenience for consumers: the type is in the envelope or the headers too.
      ...(isShort(message.eventType) && { type: message.eventType }),
    },
  };
}

function headerRefusal(name: string, value: unknown): string | undefined {
  if (!isShort(name)) return `The header name ${name.slice(0, 40)}… is longer than 255 bytes.`;
  // RabbitMQ takes these for further routing keys, and closes the channel when they are not lists.
  if (name === 'CC' || name === 'BCC') return `RabbitMQ keeps the header ${name} for itself: name it differently.`;
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return undefined;
  return `The header ${name} is not a string (${value === null ? 'null' : typeof value}).`;
}

function isShort(text: string): boolean {
  return Buffer.byteLength(text) <= shortBytesMax;
}

function reject(reason: string): PublishOutcome {
  return { kind: 'rejected', reason: cutReason(reason) };
}
