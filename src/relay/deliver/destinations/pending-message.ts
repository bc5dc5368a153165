import { PostcommitError } from '../../../errors.ts';
import type { Message, Publisher, PublishOutcome } from '../../../publishers/publisher.ts';
import { errorText } from '../../../telemetry/error-text.ts';
import type { DeliveredEvent } from '../../../wire/delivered-event.ts';
import type { Serialized, Serializer } from '../../../wire/serializer.ts';
import { isUnavailable, Unavailable } from '../../../wire/unavailable.ts';
import type { TargetOutcome } from '../../event/outcome.ts';
import { isReject } from '../../event/reject.ts';
import type { Leg } from './leg.ts';
import { toMessage } from './message.ts';

/** Why a message could not be made. `unavailable`: what its serializer depends on is down. */
export type WriteFailure =
  | Extract<TargetOutcome, { kind: 'failed' | 'rejected' | 'released' }>
  | Extract<PublishOutcome, { kind: 'unavailable' }>;

/** An event that waits to be sent to one destination, or is being sent. */
export interface PendingMessage {
  key: string | null;
  event: DeliveredEvent;
  leg: Leg;
  done: (result: TargetOutcome) => void;
  /** The part of the destination that it goes to, where the publisher has parts. */
  part: string | undefined;
  /** Serialized when its turn comes: until then only the event is kept. */
  message: Message | undefined;
  /** Its serializer has not returned yet. */
  isBeingWritten: boolean;
  /** Its serializer failed. */
  failure: WriteFailure | undefined;
}

export interface MessageWriterOptions {
  publisher: Publisher;
  serializer: Serializer;
  publishTimeoutMs: number;
  /** An asynchronous serializer has returned, or failed. */
  onWritten: () => void;
}

/** Serializes pending messages. */
export class MessageWriter {
  readonly #options: MessageWriterOptions;
  #hasFailed = false;

  constructor(options: MessageWriterOptions) {
    this.#options = options;
  }

  /** Whether a serializer has failed since the last call. */
  takeFailed(): boolean {
    const hasFailed = this.#hasFailed;
    this.#hasFailed = false;
    return hasFailed;
  }

  /** The message; `undefined` if it is not there yet, or cannot be made. */
  write(entry: PendingMessage): Message | undefined {
    if (entry.message !== undefined || entry.isBeingWritten || entry.failure !== undefined) return entry.message;
    const { event, leg } = entry;
    const { serializer, publisher } = this.#options;
    try {
      const { cloudEventsPrefix } = publisher.capabilities;
      const serialized = serializer.serialize(event, { cloudEventsPrefix, topic: leg.topic });
      if ('then' in serialized) {
        entry.isBeingWritten = true;
        void this.#writeLater(entry, serialized);
      } else {
        entry.message = toMessage(event, leg, serialized);
      }
    } catch (error) {
      this.#fail(entry, error);
    }
    return entry.message;
  }

  async #writeLater(entry: PendingMessage, serialized: Promise<Serialized>): Promise<void> {
    try {
      entry.message = toMessage(entry.event, entry.leg, await this.#inTime(serialized));
    } catch (error) {
      this.#fail(entry, error);
    }
    entry.isBeingWritten = false;
    this.#options.onWritten();
  }

  async #inTime(serialized: Promise<Serialized>): Promise<Serialized> {
    const { publishTimeoutMs, serializer } = this.#options;
    const Late = serializer.health === undefined ? Error : Unavailable;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Late(`no answer within ${publishTimeoutMs} ms`)), publishTimeoutMs);
    });
    return await Promise.race([serialized, late]).finally(() => clearTimeout(timer));
  }

  #fail(entry: PendingMessage, error: unknown): void {
    entry.failure = serializerFailed(error);
    this.#hasFailed = true;
  }
}

function serializerFailed(thrown: unknown): WriteFailure {
  if (isReject(thrown)) return { kind: 'rejected', error: thrown };
  if (isUnavailable(thrown)) return { kind: 'unavailable', reason: `The serializer: ${errorText(thrown)}` };
  // As for handlers: it is left to a relay with the newer catalogue.
  if (thrown instanceof PostcommitError && thrown.code === 'POSTCOMMIT_E_UNKNOWN_VERSION') {
    return { kind: 'released', isForeign: true };
  }
  const detail = `It said: ${errorText(thrown)}`;
  return { kind: 'failed', error: new PostcommitError('POSTCOMMIT_E_SERIALIZER_FAILED', detail) };
}
