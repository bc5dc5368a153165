import { importClient } from '../import-client.ts';
import { type KafkaConnection, type KafkaPort, type KafkaRecord, SomeFailed } from './port.ts';

/** The part of a `@confluentinc/kafka-javascript` producer that is used here, in its KafkaJS-compatible form. */
export interface ConfluentProducer {
  connect(): Promise<unknown>;
  disconnect(): Promise<unknown>;
  send(record: never): Promise<unknown>;
  dependentAdmin(): unknown;
}

interface Calls {
  connect(): Promise<unknown>;
  disconnect(): Promise<unknown>;
  send(record: { topic: string; messages: object[] }): Promise<unknown>;
  dependentAdmin(): {
    connect(): Promise<unknown>;
    disconnect(): Promise<unknown>;
    listTopics(options: object): Promise<unknown>;
  };
}

interface ConfluentModule {
  KafkaJS: {
    Kafka: new (config: object) => { producer(config: object): ConfluentProducer };
    logLevel: { ERROR: number };
  };
}

/** librdkafka's number for it. */
const authenticationFailed = -169;

export async function confluentPort(connection: KafkaConnection): Promise<KafkaPort> {
  const name = '@confluentinc/kafka-javascript';
  const module = (await importClient(name, () => import(name as string))) as ConfluentModule & {
    default?: ConfluentModule;
  };
  const { KafkaJS } = module.default ?? module;
  const { sasl, ssl, clientOptions } = connection;
  const refusals = new RefusalLog();
  const kafka = new KafkaJS.Kafka({
    kafkaJS: {
      brokers: [...connection.brokers],
      clientId: connection.clientId,
      connectionTimeout: connection.connectTimeoutMs,
      requestTimeout: connection.requestTimeoutMs,
      logLevel: KafkaJS.logLevel.ERROR,
      logger: refusals,
      ...(ssl && { ssl: true }),
      ...(sasl && { sasl }),
    },
    ...(typeof ssl === 'object' && tlsProperties(ssl)),
  });
  const producer = kafka.producer({
    kafkaJS: { idempotent: true, acks: -1, allowAutoTopicCreation: connection.autoCreateTopics },
    'compression.codec': connection.compression,
    // librdkafka counts without compression, as this publisher does; the broker decides.
    'message.max.bytes': Math.max(connection.messageBytesMax, 1_000_000),
    // What is not stored after this time never will be: until then no other producer replaces this one.
    'message.timeout.ms': connection.requestTimeoutMs,
    'linger.ms': 1,
    ...clientOptions,
  });
  return new ConfluentPort(producer, true, refusals);
}

/** librdkafka keeps retrying when it is refused, and reports it in its log only. All other log lines are ignored. */
class RefusalLog {
  /** Rejects once the broker has refused. */
  readonly refused: Promise<never>;
  #refuse: (reason: Error) => void = () => {};

  constructor() {
    this.refused = new Promise((_, reject) => {
      this.#refuse = reject;
    });
    this.refused.catch(() => {});
  }

  error(line: string): void {
    const words = /(?:SASL authentication error|SSL handshake failed|certificate verify failed).*/.exec(line)?.[0];
    if (words !== undefined) this.#refuse(Object.assign(new Error(words), { code: authenticationFailed }));
  }

  warn(): void {}
  info(): void {}
  debug(): void {}
  setLogLevel(): void {}

  namespace(): this {
    return this;
  }
}

/** librdkafka forms batches itself, retries within them and reports on each record. */
export class ConfluentPort implements KafkaPort {
  readonly resendsSafely = true;
  readonly #producer: Calls;
  readonly #owned: boolean;
  readonly #log: RefusalLog | undefined;
  #connecting: Promise<unknown> = Promise.resolve();
  #pending: Promise<unknown> = Promise.resolve();

  constructor(producer: ConfluentProducer, owned: boolean, log?: RefusalLog) {
    this.#producer = producer as unknown as Calls;
    this.#owned = owned;
    this.#log = log;
  }

  async open(): Promise<void> {
    const connecting = this.#producer.connect();
    this.#connecting = connecting.catch(() => {});
    try {
      await (this.#log ? Promise.race([connecting, this.#log.refused]) : connecting);
    } catch (error) {
      // The caller's producer may be connected already, and then refuses a second connect.
      const isConnected = !this.#owned && error instanceof Error && /already been called/.test(error.message);
      if (!isConnected) throw error;
    }
  }

  async send(records: readonly KafkaRecord[]): Promise<void> {
    const sends = records.map(({ topic, key, value, headers }) =>
      this.#producer.send({ topic, messages: [{ key, value, headers: { ...headers } }] }),
    );
    const settling = Promise.allSettled(sends);
    this.#pending = settling;
    const errors = new Map<KafkaRecord, unknown>();
    for (const [index, result] of (await settling).entries()) {
      const record = records[index];
      if (result.status === 'rejected' && record) errors.set(record, result.reason);
    }
    if (errors.size > 0) throw new SomeFailed(errors);
  }

  async ping(): Promise<void> {
    const admin = this.#producer.dependentAdmin();
    await admin.connect();
    try {
      await admin.listTopics({ timeout: 5_000 });
    } finally {
      await admin.disconnect().catch(() => {});
    }
  }

  async discard(): Promise<void> {
    await this.#pending;
    await this.close();
  }

  async close(): Promise<void> {
    if (!this.#owned) return;
    // Closed while it connects, it would throw an error that cannot be caught.
    await this.#connecting;
    await this.#producer.disconnect().catch(() => {});
  }
}

/** Node's TLS options as librdkafka's properties. */
function tlsProperties(tls: object): Record<string, unknown> {
  const { ca, cert, key, passphrase, rejectUnauthorized } = tls as Record<string, unknown>;
  const pem = (value: unknown) => (Array.isArray(value) ? value.join('\n') : String(value));
  return {
    ...(ca !== undefined && { 'ssl.ca.pem': pem(ca) }),
    ...(cert !== undefined && { 'ssl.certificate.pem': pem(cert) }),
    ...(key !== undefined && { 'ssl.key.pem': pem(key) }),
    ...(passphrase !== undefined && { 'ssl.key.password': passphrase }),
    ...(rejectUnauthorized === false && { 'enable.ssl.certificate.verification': false }),
  };
}
