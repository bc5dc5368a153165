import { createHash } from 'node:crypto';
import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { untilAborted } from '../publishers/failure.ts';
import { type ConsumerOptions, readConsumerOptions, resolveConsumerOptions } from './consumer-options.ts';
import { EventConsumer, type MessageSource } from './event-consumer.ts';
import { pause } from './event-processor.ts';
import { type DeadLetterReason, Intake, quietController } from './intake.ts';
import { deadLetterHeaders, lowerCaseHeaders } from './message-headers.ts';

interface SqsAttribute {
  readonly DataType: string | undefined;
  readonly StringValue?: string | undefined;
  readonly BinaryValue?: Uint8Array | undefined;
}

/** A message as SQS delivers it. */
export interface SqsIncoming {
  readonly MessageId?: string | undefined;
  readonly Body?: string | undefined;
  readonly ReceiptHandle?: string | undefined;
  readonly Attributes?: Readonly<Record<string, string | undefined>> | undefined;
  readonly MessageAttributes?: Readonly<Record<string, SqsAttribute>> | undefined;
}

interface SqsBatchResult {
  readonly Failed?: readonly { readonly Id?: string | undefined }[] | undefined;
}

interface SqsCallOptions {
  readonly abortSignal: AbortSignal;
}

/** The part of the SDK's `SQS` that is used here. */
export interface SqsCalls {
  receiveMessage(
    input: {
      QueueUrl: string;
      MaxNumberOfMessages: number;
      WaitTimeSeconds: number;
      VisibilityTimeout: number;
      MessageAttributeNames: string[];
      MessageSystemAttributeNames: 'All'[];
    },
    options: SqsCallOptions,
  ): Promise<{ readonly Messages?: SqsIncoming[] | undefined }>;
  deleteMessageBatch(
    input: { QueueUrl: string; Entries: { Id: string; ReceiptHandle: string }[] },
    options: SqsCallOptions,
  ): Promise<SqsBatchResult>;
  changeMessageVisibilityBatch(
    input: { QueueUrl: string; Entries: { Id: string; ReceiptHandle: string; VisibilityTimeout: number }[] },
    options: SqsCallOptions,
  ): Promise<SqsBatchResult>;
  sendMessage(
    input: {
      QueueUrl: string;
      MessageBody: string;
      MessageAttributes: Record<string, SqsAttribute>;
      MessageGroupId?: string;
      MessageDeduplicationId?: string;
    },
    options: SqsCallOptions,
  ): Promise<unknown>;
}

interface SqsOnly {
  /** A client of `@aws-sdk/client-sqs`: `new SQS({ region })`. It is not closed. */
  client: SqsCalls;
  queueUrl: string;
  /**
   * Where messages go that fail for good, with the reason in the attribute `dead-letter-reason`. A FIFO queue for a FIFO queue. Default:
   * they stay in the queue, and its redrive policy moves them after `maxReceiveCount` deliveries.
   */
  deadLetterQueueUrl?: string;
  /**
   * Seconds until SQS delivers a message again that a crashed consumer had, from 3 to 43,200. It is extended while a message is being processed.
   * Default 30.
   */
  visibilitySeconds?: number;
  /** Seconds that a request waits for messages, from 0 to 20. `stop()` waits for it as well. Default 5. */
  waitSeconds?: number;
  /** Milliseconds for SQS to answer a request, besides `waitSeconds`, from 1 to 600,000. Default 10,000. */
  requestTimeoutMs?: number;
}

/** Options of `consumeSqs()`. */
export type SqsConsumerOptions<Tx, Catalogue extends EventCatalogue = EventCatalogue> = SqsOnly &
  ConsumerOptions<Tx, Catalogue>;

const own = ['client', 'queueUrl', 'deadLetterQueueUrl', 'visibilitySeconds', 'waitSeconds', 'requestTimeoutMs'];
/** SQS's limits. */
const batchSizeMax = 10;
const attributesMax = 10;
/** The characters that SQS does not take: those that XML does not. */
const forbidden = /[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu;
const pollDelayMaxMs = 10_000;
const redeliverySecondsMax = 300;
const deleteTriesMax = 4;

/**
 * Consumes a queue of SQS, standard or FIFO. A processed message is deleted. While a message waits or is being processed, its visibility
 * timeout is extended.
 *
 * @example
 * import { SQS } from '@aws-sdk/client-sqs';
 * import { consumeSqs } from 'postcommit/sqs';
 *
 * const orders = consumeSqs({
 *   client: new SQS({ region: 'eu-central-1' }),
 *   queueUrl: 'https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo',
 *   handle: (event) => console.log(event.id),
 * });
 * await orders.start();
 */
export function consumeSqs<Tx, Catalogue extends EventCatalogue = EventCatalogue>(
  options: SqsConsumerOptions<Tx, Catalogue>,
): EventConsumer {
  const { fail, whole, text } = readConsumerOptions('consumeSqs', options, own);
  const { client } = options;
  if (typeof client?.receiveMessage !== 'function') throw fail('client must be an SQS of @aws-sdk/client-sqs.');
  const queueUrl = text('queueUrl');
  if (queueUrl === undefined) throw fail('queueUrl must be the URL of a queue.');
  const deadLetterQueueUrl = text('deadLetterQueueUrl');
  const intake = new Intake(resolveConsumerOptions('consumeSqs', options, own), {
    keepsFailed: deadLetterQueueUrl === undefined,
  });
  const visibilitySeconds = whole('visibilitySeconds', 30, 3, 43_200);
  const waitSeconds = whole('waitSeconds', 5, 0, 20);
  const requestTimeoutMs = whole('requestTimeoutMs', 10_000, 1, 600_000);
  const resolved = { client, queueUrl, deadLetterQueueUrl, visibilitySeconds, waitSeconds, requestTimeoutMs };
  return new EventConsumer(intake, new SqsSource(intake, resolved));
}

interface ResolvedSqs {
  readonly client: SqsCalls;
  readonly queueUrl: string;
  readonly deadLetterQueueUrl: string | undefined;
  readonly visibilitySeconds: number;
  readonly waitSeconds: number;
  readonly requestTimeoutMs: number;
}

class SqsSource implements MessageSource {
  readonly #intake: Intake;
  readonly #options: ResolvedSqs;
  /** Messages that are not settled. */
  readonly #unsettled = new Set<SqsIncoming>();
  readonly #deletable: SqsIncoming[] = [];
  #deleting: Promise<void> | undefined;
  /** With the seconds after which SQS delivers each again. */
  readonly #releasable: { message: SqsIncoming; seconds: number }[] = [];
  #reading: Promise<void> | undefined;
  #extending: NodeJS.Timeout | undefined;
  #isExtending = false;

  constructor(intake: Intake, options: ResolvedSqs) {
    this.#intake = intake;
    this.#options = options;
  }

  async start(): Promise<void> {
    await this.#receive(0);
    this.#extending = setInterval(() => void this.#extend(), (this.#options.visibilitySeconds * 1_000) / 3);
    this.#reading = this.#read();
  }

  async stop(): Promise<void> {
    await this.#reading;
    await this.#intake.idle();
    await this.#deleting;
    clearInterval(this.#extending);
    await this.#release();
  }

  async #read(): Promise<void> {
    const { stopping, options } = this.#intake;
    for (let tries = 0; !stopping.aborted; ) {
      await this.#intake.room(Math.max(batchSizeMax, options.inFlightMax));
      try {
        await this.#receive(this.#options.waitSeconds);
        await this.#release();
        tries = 0;
      } catch (error) {
        if (stopping.aborted) return;
        this.#intake.disconnected(error);
        await pause(Math.random() * Math.min(pollDelayMaxMs, 200 * 2 ** Math.min(tries++, 10)), stopping);
      }
    }
  }

  async #receive(WaitTimeSeconds: number): Promise<void> {
    const { client, queueUrl, visibilitySeconds } = this.#options;
    const input = {
      QueueUrl: queueUrl,
      MaxNumberOfMessages: batchSizeMax,
      WaitTimeSeconds,
      VisibilityTimeout: visibilitySeconds,
      MessageAttributeNames: ['All'],
      MessageSystemAttributeNames: ['All' as const],
    };
    // Not aborted by a stop: SQS would hide the messages of an answer that is not read, and block their groups.
    const receive = (options: SqsCallOptions) => client.receiveMessage(input, options);
    const { Messages: messages = [] } = await this.#inTime(receive, WaitTimeSeconds * 1_000);
    // When a message of a group stays in the queue, those behind it must not pass it.
    const groups = new Map<string, AbortController>();
    for (const message of messages) {
      const group = message.Attributes?.MessageGroupId;
      const blocked = (group === undefined ? undefined : groups.get(group)) ?? quietController();
      if (group !== undefined) groups.set(group, blocked);
      this.#intake.track(this.#process(message, blocked));
    }
  }

  async #process(message: SqsIncoming, blocked: AbortController): Promise<void> {
    this.#unsettled.add(message);
    const { deadLetterQueueUrl } = this.#options;
    const { kind } = await this.#intake.receive({
      message: toMessage(message),
      origin: { system: 'sqs', destination: this.#options.queueUrl.split('/').at(-1) },
      lost: blocked.signal,
      kept: () => blocked.abort(),
      deadLetter: (reason) => {
        if (deadLetterQueueUrl !== undefined) return this.#handOver(message, reason, deadLetterQueueUrl);
        blocked.abort();
      },
    });
    this.#unsettled.delete(message);
    const isHandedOver = deadLetterQueueUrl !== undefined && (kind === 'failed' || kind === 'rejected');
    if (isHandedOver || kind === 'processed' || kind === 'duplicate' || kind === 'skipped') {
      this.#deletable.push(message);
      this.#deleting ??= this.#delete();
      return;
    }
    const seconds = kind === 'released' ? 0 : redeliverySeconds(message);
    this.#releasable.push({ message, seconds });
    if (!this.#intake.stopping.aborted) await this.#release();
  }

  async #handOver(message: SqsIncoming, reason: DeadLetterReason, queueUrl: string): Promise<void> {
    const { Body = '', MessageAttributes = {} } = message;
    const { MessageGroupId, MessageDeduplicationId } = message.Attributes ?? {};
    const send = (attributes: Readonly<Record<string, SqsAttribute>>) => {
      const input = {
        QueueUrl: queueUrl,
        MessageBody: Body,
        MessageAttributes: { ...attributes },
        ...(MessageGroupId !== undefined && { MessageGroupId }),
        ...(MessageDeduplicationId !== undefined && {
          MessageDeduplicationId: deadLetterId(message, this.#options.queueUrl),
        }),
      };
      return this.#inTime((options) => this.#options.client.sendMessage(input, options));
    };
    try {
      await send(withReason(MessageAttributes, reason));
    } catch (error) {
      // Above all when it is as large as SQS allows: then the reason is only in the log.
      if (!isRefused(error)) throw error;
      await send(MessageAttributes);
    }
  }

  /** Deletes what is processed, until nothing is left. What cannot be deleted is delivered again, and the inbox skips it. */
  async #delete(): Promise<void> {
    const { client, queueUrl } = this.#options;
    const { stopping } = this.#intake;
    for (let tries = 0; this.#deletable.length > 0; ) {
      const some = this.#deletable.splice(0, batchSizeMax);
      const input = { QueueUrl: queueUrl, Entries: some.map(toEntry) };
      let left = some;
      try {
        const { Failed = [] } = await this.#inTime((options) => client.deleteMessageBatch(input, options));
        left = Failed.flatMap(({ Id }) => some[Number(Id)] ?? []);
        if (left.length > 0) throw new Error(`SQS did not delete ${left.length} messages.`);
        tries = 0;
      } catch (error) {
        this.#intake.disconnected(error);
        // The stop waits for this, and each request would use up its time.
        if (stopping.aborted && error instanceof NoAnswer) this.#deletable.length = 0;
        else if (++tries >= deleteTriesMax) tries = 0;
        else this.#deletable.unshift(...left);
        await pause(100 * 2 ** tries, stopping);
      }
    }
    // In the same turn as the check above: a message that is added later finds that nothing deletes it.
    this.#deleting = undefined;
  }

  async #release(): Promise<void> {
    const some = this.#releasable.splice(0);
    // Those in front last: SQS may deliver each as soon as it is visible.
    for (let end = some.length; end > 0; end -= batchSizeMax) {
      const part = some.slice(Math.max(0, end - batchSizeMax), end);
      try {
        await this.#setVisibility(part);
      } catch (error) {
        // SQS delivers them after the visibility timeout.
        if (error instanceof NoAnswer) return;
      }
    }
  }

  async #extend(): Promise<void> {
    if (this.#isExtending) return;
    this.#isExtending = true;
    const all = [...this.#unsettled].map((message) => ({ message, seconds: this.#options.visibilitySeconds }));
    for (let start = 0; start < all.length; start += batchSizeMax) {
      const part = all.slice(start, start + batchSizeMax);
      await this.#setVisibility(part).catch((error) => this.#intake.disconnected(error));
    }
    this.#isExtending = false;
  }

  async #setVisibility(some: readonly { message: SqsIncoming; seconds: number }[]): Promise<void> {
    const Entries = some.map(({ message, seconds }, index) => ({
      ...toEntry(message, index),
      VisibilityTimeout: seconds,
    }));
    const { client, queueUrl } = this.#options;
    await this.#inTime((options) => client.changeMessageVisibilityBatch({ QueueUrl: queueUrl, Entries }, options));
  }

  /** A request that is never answered would stop everything behind it, and the stop of the consumer. */
  async #inTime<T>(request: (options: SqsCallOptions) => Promise<T>, waitMs = 0): Promise<T> {
    const timeoutMs = waitMs + this.#options.requestTimeoutMs;
    const abortSignal = AbortSignal.timeout(timeoutMs);
    try {
      return await untilAborted(request({ abortSignal }), abortSignal);
    } catch (error) {
      throw abortSignal.aborted ? new NoAnswer(`SQS did not answer within ${timeoutMs} ms.`) : error;
    }
  }
}

class NoAnswer extends Error {}

function toEntry({ ReceiptHandle = '' }: SqsIncoming, index: number): { Id: string; ReceiptHandle: string } {
  return { Id: String(index), ReceiptHandle };
}

/** The attributes of a message, and as many of a dead letter as there is room for. */
function withReason(
  given: Readonly<Record<string, SqsAttribute>>,
  reason: DeadLetterReason,
): Record<string, SqsAttribute> {
  const attributes = { ...given };
  for (const [name, value] of Object.entries(deadLetterHeaders(reason))) {
    if (Object.keys(attributes).length >= attributesMax) break;
    attributes[name] = { DataType: 'String', StringValue: value.replace(forbidden, '\uFFFD') };
  }
  return attributes;
}

/** Whether SQS refuses the message itself, e.g. for its size. */
function isRefused(error: unknown): boolean {
  return (
    error instanceof Error && /(?:^|\.)(?:InvalidParameter|InvalidMessageContents|InvalidAttribute)/.test(error.name)
  );
}

/** Longer with each delivery. */
function redeliverySeconds({ Attributes }: SqsIncoming): number {
  const deliveries = Number(Attributes?.ApproximateReceiveCount ?? 1);
  return Math.min(redeliverySecondsMax, 2 ** Math.min(deliveries - 1, 10));
}

/** As the publisher writes it: headers beyond SQS's limit are in one attribute, and bytes are in base64. */
function toMessage({ Body = '', MessageAttributes = {} }: SqsIncoming) {
  const all = Object.fromEntries(Object.entries(MessageAttributes).map(([name, it]) => [name, it.StringValue]));
  const { 'more-headers': more, 'body-encoding': encoding, ...headers } = all;
  return {
    body: encoding === 'base64' ? Buffer.from(Body, 'base64') : Body,
    headers: lowerCaseHeaders({ ...headers, ...parseObject(more) }),
  };
}

function parseObject(json: string | undefined): object {
  try {
    const parsed: unknown = JSON.parse(json ?? '{}');
    return typeof parsed === 'object' && parsed !== null ? parsed : {};
  } catch {
    return {};
  }
}

/**
 * The deduplication id in the dead-letter queue: the same however often the message is delivered, and another one for the same event
 * from another queue, or sent again by an operator. SQS accepts a second message with the id of the event, and does not store it.
 */
function deadLetterId({ MessageId = '', Attributes = {} }: SqsIncoming, queueUrl: string): string {
  const parts = [queueUrl, MessageId, Attributes.MessageDeduplicationId ?? ''];
  return createHash('sha256').update(parts.join('\n')).digest('hex');
}
