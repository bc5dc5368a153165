import { PostcommitError } from '../../errors.ts';
import { isUntrustedCertificate, reasonOf } from '../failure.ts';
import type { PublishOutcome } from '../publisher.ts';

/**
 * What a failure is about. `refused`: credentials, certificates. `tooLarge` and `badRecord`: one of the records. `topic`:
 * all records of the topic. `outage`: the broker.
 */
export interface KafkaFailure {
  readonly about: 'refused' | 'tooLarge' | 'badRecord' | 'topic' | 'outage';
  readonly outcome: PublishOutcome;
}

/** Classifies the errors of every client, by the error code of Kafka's protocol and by their text. */
export function kafkaFailure(error: unknown): KafkaFailure {
  const causes = [...causesOf(error)];
  const protocolError = causes.map(findProtocolError).find((found) => found !== undefined);
  const words = reasonOf(protocolError?.error ?? causes.at(-1) ?? error);
  if (protocolError === undefined) {
    const refused = causes.some(
      (cause) => isUntrustedCertificate(cause) || isTlsRefusal(cause) || isLoginRefusal(cause),
    );
    return { about: refused ? 'refused' : 'outage', outcome: { kind: 'unavailable', reason: words } };
  }
  const { code } = protocolError;
  const name = protocolNames[code];
  const reason = name === undefined || words.includes(name) ? words : `${name}: ${words}`;
  if (refusals.has(code)) return { about: 'refused', outcome: { kind: 'unavailable', reason } };
  if (tooLarge.has(code)) return { about: 'tooLarge', outcome: { kind: 'rejected', reason } };
  if (badRecords.has(code)) return { about: 'badRecord', outcome: { kind: 'rejected', reason } };
  if (outages.has(code)) return { about: 'outage', outcome: { kind: 'unavailable', reason } };
  return { about: 'topic', outcome: { kind: code === invalidTopic ? 'rejected' : 'failed', reason } };
}

/** The error that `connect` throws, with a code of its own for a failure that waiting does not fix. */
export function connectError(error: unknown): unknown {
  if (error instanceof PostcommitError) return error;
  const { about, outcome } = kafkaFailure(error);
  if (
    about === 'outage' &&
    outcome.kind !== 'delivered' &&
    /closed connection|initProducerId failed/i.test(outcome.reason)
  ) {
    return new Error(`${outcome.reason} The broker hung up: does this listener expect TLS or SASL?`, { cause: error });
  }
  if (about !== 'refused' || outcome.kind === 'delivered') return error;
  return new PostcommitError('POSTCOMMIT_E_DESTINATION_REFUSED', outcome.reason, { cause: error });
}

const invalidTopic = 17;
const tooLarge = new Set([10, 18]);
const badRecords = new Set([32, 43, 87]);
const refusals = new Set([31, 33, 58]);
/**
 * The broker, its replicas or the coordinator are not available right now. Those about sequences and producer ids (45 to
 * 47, 59) end with a new producer.
 */
const outages = new Set([5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 41, 45, 46, 47, 56, 59, 72, 74, 75, 89, 90]);

const protocolNames: Readonly<Record<number, string>> = {
  3: 'UNKNOWN_TOPIC_OR_PARTITION',
  5: 'LEADER_NOT_AVAILABLE',
  6: 'NOT_LEADER_OR_FOLLOWER',
  7: 'REQUEST_TIMED_OUT',
  10: 'MESSAGE_TOO_LARGE',
  17: 'INVALID_TOPIC_EXCEPTION',
  18: 'RECORD_LIST_TOO_LARGE',
  19: 'NOT_ENOUGH_REPLICAS',
  20: 'NOT_ENOUGH_REPLICAS_AFTER_APPEND',
  29: 'TOPIC_AUTHORIZATION_FAILED',
  31: 'CLUSTER_AUTHORIZATION_FAILED',
  32: 'INVALID_TIMESTAMP',
  45: 'OUT_OF_ORDER_SEQUENCE_NUMBER',
  58: 'SASL_AUTHENTICATION_FAILED',
  87: 'INVALID_RECORD',
};

/** The error and all that it wraps: clients wrap the broker's error in their own about retries. */
function* causesOf(error: unknown, depth = 0): Generator<unknown> {
  if (error === undefined || error === null || depth > 5) return;
  yield error;
  const { cause, errors } = error as { cause?: unknown; errors?: unknown };
  for (const inner of Array.isArray(errors) ? errors.slice(0, 10) : []) yield* causesOf(inner, depth + 1);
  yield* causesOf(cause, depth + 1);
}

function findProtocolError(error: unknown): { code: number; error: unknown } | undefined {
  const { apiCode, code } = error as { apiCode?: unknown; code?: unknown };
  const number = apiCode ?? code;
  // librdkafka's own codes are negative, Node's are texts.
  return typeof number === 'number' && number > 0 ? { code: number, error } : undefined;
}

function isLoginRefusal(error: unknown): boolean {
  const { name, code } = error as { name?: unknown; code?: unknown };
  const librdkafkaAuthentication = -169;
  return (
    name === 'KafkaJSSASLAuthenticationError' || code === 'PLT_KFK_AUTHENTICATION' || code === librdkafkaAuthentication
  );
}

/** The TLS handshake failed: the server has no TLS, or refuses our certificate. */
function isTlsRefusal(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  return typeof code === 'string' && code.startsWith('ERR_SSL_');
}
