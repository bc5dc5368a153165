/**
 * What the Kafka publisher needs of a client: one producer, used by one call of `publish` at a time. A producer that
 * failed is not used by a later call, so that no sequence number of an idempotent producer is ever given out twice.
 */
export interface KafkaPort {
  /** Connects and gets its producer id. */
  open(): Promise<void>;
  /**
   * The partitions of a topic and their leaders; creates the topic where broker and client allow that. Left out where
   * the client chooses the partition itself.
   */
  partitionsOf?(topic: string): Promise<readonly KafkaPartition[]>;
  /**
   * Stores the records of a partition together or not at all, and resolves when all are stored on all replicas in sync
   * and the client's answer says so for every partition. Rejects with `SomeFailed` where the client knows the result of
   * each record or partition. After any other failure a second call with the same records of a partition stores none of
   * them twice, if `resendsSafely`.
   */
  send(records: readonly KafkaRecord[]): Promise<void>;
  readonly resendsSafely: boolean;
  /** Checks that the cluster answers. */
  ping(): Promise<void>;
  /**
   * Closes the connections and drops what is in flight, as far as the client allows. Resolves, and never rejects, once
   * this producer can deliver nothing any more; until then no other producer replaces it.
   */
  discard(): Promise<void>;
  /** Closes gracefully, once nothing is in flight. */
  close(): Promise<void>;
}

export interface KafkaPartition {
  readonly partition: number;
  /** The broker that leads it. */
  readonly leader: number;
}

export interface KafkaRecord {
  readonly topic: string;
  /** `undefined` until it is chosen, and where the client chooses it. */
  partition: number | undefined;
  readonly key: string | null;
  readonly value: string | Buffer;
  readonly headers: Record<string, string>;
}

/** Some records were not stored, each for a reason of its own; all others of the call were. */
export class SomeFailed extends Error {
  readonly errors: ReadonlyMap<KafkaRecord, unknown>;

  constructor(errors: ReadonlyMap<KafkaRecord, unknown>) {
    super(`${errors.size} records were not stored.`);
    this.errors = errors;
  }
}

/**
 * Some partitions were refused, all others of the call were stored. All records of a refused partition are named, with the
 * reason of the partition; one that the broker holds responsible has a `RecordRefused`.
 */
export class PartitionsRefused extends SomeFailed {}

/** The broker named this record as one that it can never take. */
export class RecordRefused extends Error {
  readonly apiCode: number;

  constructor(message: string, apiCode: number) {
    super(message);
    this.apiCode = apiCode;
  }
}

/**
 * The client resolved, but its answer does not mention the record's partition: it may not have been sent at all. The
 * client's view of the cluster is out of date, and so are its sequence numbers.
 */
export class AnswerIncomplete extends Error {
  constructor({ topic, partition }: KafkaRecord) {
    const place = partition === undefined ? `topic ${topic}` : `partition ${partition} of ${topic}`;
    super(`The Kafka client did not report ${place} as stored.`);
  }
}

/** The options that every client is made from. */
export interface KafkaConnection {
  readonly brokers: readonly string[];
  readonly clientId: string;
  readonly ssl: boolean | object | undefined;
  readonly sasl: KafkaSasl | undefined;
  readonly compression: KafkaCompression;
  readonly connectTimeoutMs: number;
  readonly requestTimeoutMs: number;
  readonly autoCreateTopics: boolean;
  readonly messageBytesMax: number;
  /** Further options in the client's own format, on top of ours. */
  readonly clientOptions: Readonly<Record<string, unknown>>;
}

export type KafkaCompression = 'none' | 'gzip' | 'snappy' | 'lz4' | 'zstd';

/** How to log in. With kafkajs, its other mechanisms (`aws`, `oauthbearer`) are passed through as they are. */
export type KafkaSasl =
  | { mechanism: 'plain' | 'scram-sha-256' | 'scram-sha-512'; username: string; password: string }
  | { mechanism: string; [option: string]: unknown };
