import type { JetStreamClient, JetStreamManager } from '@nats-io/jetstream';
import type { MsgHdrs, NatsConnection } from '@nats-io/transport-node';
import type { BrokerConnection } from '../broker-connection-keeper.ts';
import { cutReason, reasonOf } from '../failure.ts';
import { delivered, type PublishOutcome } from '../publisher.ts';
import type { NatsMessage } from './message.ts';

// "message size exceeds maximum allowed" of the stream, "header size exceeds maximum allowed of 64k".
const tooLargeCodes = new Set([10054, 10097]);
// No quorum, insufficient resources, JetStream not enabled (for the account), stream offline: nothing of one message.
const outageCodes = new Set([10008, 10023, 10039, 10076, 10118]);

/** What the server knows about the stream of a subject. */
type StreamState = 'there' | 'none' | 'no JetStream' | 'unknown';

/** One connection to NATS. It is never reconnected, but replaced once it is lost. */
export class JetstreamConnection implements BrokerConnection {
  readonly createHeaders: () => MsgHdrs;
  readonly #connection: NatsConnection;
  readonly #jetstream: JetStreamClient;
  readonly #manager: JetStreamManager;
  readonly #lookups = new Map<string, Promise<StreamState>>();
  readonly #waiting = new Set<() => void>();
  #lost: string | undefined;

  constructor(
    connection: NatsConnection,
    jetstream: JetStreamClient,
    manager: JetStreamManager,
    createHeaders: () => MsgHdrs,
  ) {
    this.createHeaders = createHeaders;
    this.#connection = connection;
    this.#jetstream = jetstream;
    this.#manager = manager;
    connection.closed().then(
      (error) => this.#lose(error ? reasonOf(error) : 'it was closed'),
      (error) => this.#lose(reasonOf(error)),
    );
  }

  get lost(): boolean {
    return this.#lost !== undefined || this.#connection.isClosed();
  }

  async send(message: NatsMessage): Promise<PublishOutcome> {
    const { subject, body, headers, deduplicationId } = message;
    if (this.lost) return this.#unavailable();
    try {
      const { stream, seq } = await this.#jetstream.publish(subject, body, { msgID: deduplicationId, headers });
      // Also when it is a duplicate. Any subscriber of the subject can answer; only a stream answers like this.
      if (typeof stream === 'string' && stream !== '' && seq > 0) return delivered;
      return { kind: 'failed', reason: noStream(subject) };
    } catch (error) {
      return await this.#outcomeOf(error, message);
    }
  }

  /** A round trip. Rejects when the connection is lost before it ends. */
  async check(): Promise<void> {
    if (this.lost) throw new Error(this.#unavailable().reason);
    await new Promise<void>((resolve, reject) => {
      // The client leaves it unanswered when the connection ends.
      const onLost = () => reject(new Error(this.#unavailable().reason));
      this.#waiting.add(onLost);
      this.#connection
        .flush()
        .then(resolve, reject)
        .finally(() => this.#waiting.delete(onLost));
    });
  }

  giveUp(reason: string): void {
    this.#lose(reason);
    this.#connection.close().catch(() => {});
  }

  async close(): Promise<void> {
    // What was published is acknowledged, so there is nothing to drain.
    this.giveUp('the publisher was closed');
  }

  async #outcomeOf(error: unknown, { subject }: NatsMessage): Promise<PublishOutcome> {
    if (this.lost) return this.#unavailable();
    const { name, message, code, cause } = error as Error & { code?: unknown; cause?: Error & { operation?: string } };
    const words = cutReason(`Subject '${subject}': ${message}`);
    if (name === 'InvalidArgumentError' && message.includes('max_payload')) {
      const limit = this.#connection.info?.max_payload;
      return { kind: 'rejected', reason: `Body and headers are over the server's max_payload of ${limit} bytes.` };
    }
    if (name === 'InvalidArgumentError' || name === 'InvalidSubjectError') return { kind: 'rejected', reason: words };
    if (name === 'JetStreamApiError' && typeof code === 'number') {
      if (tooLargeCodes.has(code)) return { kind: 'rejected', reason: words };
      return { kind: outageCodes.has(code) ? 'unavailable' : 'failed', reason: words };
    }
    if (name === 'TimeoutError' || name === 'JetStreamNotEnabled') {
      return afterSilence(subject, await this.#lookUp(subject), name === 'TimeoutError');
    }
    if (cause?.name === 'PermissionViolationError' && cause.operation === 'publish') {
      return { kind: 'failed', reason: words };
    }
    if (name === 'SyntaxError') {
      return { kind: 'failed', reason: noStream(subject) };
    }
    return { kind: 'unavailable', reason: words };
  }

  /** One question per subject at a time, however many messages wait for its answer. */
  #lookUp(subject: string): Promise<StreamState> {
    const underWay = this.#lookups.get(subject);
    if (underWay) return underWay;
    const lookup = this.#manager.streams
      .find(subject)
      .then(
        (): StreamState => 'there',
        ({ name }: Error): StreamState => {
          if (name === 'StreamNotFoundError') return 'none';
          return name === 'JetStreamNotEnabled' || name === 'NoRespondersError' ? 'no JetStream' : 'unknown';
        },
      )
      .finally(() => this.#lookups.delete(subject));
    this.#lookups.set(subject, lookup);
    return lookup;
  }

  #unavailable() {
    return { kind: 'unavailable', reason: `The connection to NATS is lost: ${this.#lost ?? 'it was closed'}` } as const;
  }

  #lose(reason: string): void {
    this.#lost ??= reason;
    for (const onLost of [...this.#waiting]) onLost();
    this.#waiting.clear();
  }
}

function noStream(subject: string): string {
  return cutReason(`Subject '${subject}' was answered by a subscriber that is not a stream.`);
}

/** There was no answer. Whether that is an outage or a wrong subject depends on whether there is a stream for it. */
function afterSilence(subject: string, stream: StreamState, someoneListens: boolean): PublishOutcome {
  if (stream === 'no JetStream') return { kind: 'unavailable', reason: 'JetStream is not enabled, or not ready yet.' };
  if (stream === 'none' || (stream === 'unknown' && !someoneListens)) {
    return { kind: 'failed', reason: cutReason(`No stream stores the subject '${subject}' (no responders).`) };
  }
  return { kind: 'unavailable', reason: cutReason(`The stream of subject '${subject}' does not acknowledge now.`) };
}
