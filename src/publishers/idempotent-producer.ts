interface Asked {
  isIdempotent?(): unknown;
  /** Only producers of `@confluentinc/kafka-javascript` have it. */
  dependentAdmin?: unknown;
}

/**
 * Whether this is an idempotent producer of kafkajs, which loses records after a failure: kafkajs uses the sequence numbers of a failed
 * request again, and the broker confirms what it drops as a repetition. Clients based on librdkafka do not.
 */
export function isIdempotentKafkajs(producer: unknown): boolean {
  const { isIdempotent, dependentAdmin } = (producer ?? {}) as Asked;
  return typeof isIdempotent === 'function' && dependentAdmin === undefined && isIdempotent.call(producer) === true;
}
