import { cutReason, isUntrustedCertificate, reasonOf } from '../failure.ts';
import type { PublishOutcome } from '../publisher.ts';

/** How AWS reports that one entry of a request failed. */
export interface AwsEntryFailure {
  readonly Id?: string | undefined;
  readonly Code?: string | undefined;
  readonly Message?: string | undefined;
}

/** What a failed request means. */
export type AwsFailure =
  /** The same for every message of the request. */
  | { readonly of: 'all'; readonly outcome: PublishOutcome }
  /** It may be the fault of one entry: each is to be tried alone. */
  | { readonly of: 'some'; readonly outcome: PublishOutcome };

/** AWS refuses our credentials: nothing can be sent until an operator fixes them. */
const unknownIdentity =
  /^(?:InvalidClientTokenId|UnrecognizedClient|SignatureDoesNotMatch|InvalidSignature|InvalidAccessKeyId|IncompleteSignature|MissingAuthenticationToken|InvalidSecurity|ExpiredToken|RequestExpired|OptInRequired|CredentialsProviderError|TokenProviderError)$/;
const accessDenied = /^(?:AccessDenied|AuthorizationError|Forbidden)$/;
const overloaded =
  /Throttl|^(?:OverLimit|TooManyRequests|RequestLimitExceeded|SlowDown|InternalError|InternalFailure|ServiceUnavailable)$/;
const noSuchTarget = /^(?:QueueDoesNotExist|NonExistentQueue|QueueDeletedRecently|NotFound|ResourceNotFound)$/;
const encryption = /^kms/i;
/** Said of a parameter that is the message itself. Wrong queues and topics are invalid parameters, too. */
const tooLong = /too long|shorter than|maximum message size|message size|invalid character/i;

/** Whether connecting failed in a way that waiting does not fix. */
export function isRefusal(error: unknown): boolean {
  return isUntrustedCertificate(error) || unknownIdentity.test(codeOf(error));
}

/** Whether the client found no region, neither in its options nor in its surroundings. */
export function isRegionMissing(error: unknown): boolean {
  return error instanceof Error && error.message === 'Region is missing';
}

export function isAccessDenied(error: unknown): boolean {
  return accessDenied.test(codeOf(error));
}

export function isNoSuchTarget(error: unknown): boolean {
  return noSuchTarget.test(codeOf(error));
}

/** Whether the service answered, with an error or not: then it is alive. */
export function isAnswer(error: unknown): boolean {
  const status = statusOf(error);
  return status !== undefined && status < 500;
}

export function failureOfRequest(error: unknown, target: string): AwsFailure {
  const code = codeOf(error);
  const words = wordsOf(code, reasonOf(error));
  const status = statusOf(error);
  if (status === undefined || status >= 500 || status === 429 || overloaded.test(code) || unknownIdentity.test(code)) {
    return { of: 'all', outcome: { kind: 'unavailable', reason: words } };
  }
  const reason = cutReason(`${target}: ${words}`);
  const wholeTarget = accessDenied.test(code) || noSuchTarget.test(code) || encryption.test(code);
  if (wholeTarget) return { of: 'all', outcome: { kind: 'failed', reason } };
  return { of: 'some', outcome: { kind: isBadMessage(code, words) ? 'rejected' : 'failed', reason } };
}

export function outcomeOfEntry({ Code = '', Message = '' }: AwsEntryFailure): PublishOutcome {
  const code = plainCode(Code);
  const reason = wordsOf(code, Message);
  if (overloaded.test(code)) return { kind: 'unavailable', reason };
  return { kind: isBadMessage(code, Message) ? 'rejected' : 'failed', reason };
}

/** Whether the message itself is wrong. It stays wrong. */
function isBadMessage(code: string, words: string): boolean {
  if (code === 'InvalidMessageContents' || code === 'BatchRequestTooLong') return true;
  return /^(?:InvalidParameter|Validation)/.test(code) && tooLong.test(words);
}

function wordsOf(code: string, message: string): string {
  if (message === '' || message === code) return code || 'AWS gave no reason.';
  return cutReason(code === '' ? message : `${code}: ${message}`);
}

function codeOf(error: unknown): string {
  // Other codes come from the system, and the message contains them.
  if (!(error instanceof Error) || /^(?:Error|TypeError|AggregateError)$/.test(error.name)) return '';
  return plainCode(error.name);
}

/** The same code comes as `AWS.SimpleQueueService.NonExistentQueue`, `NotFound` and `NotFoundException`. */
function plainCode(code: string): string {
  return code.replace(/^.*[.#]/, '').replace(/Exception$/, '');
}

function statusOf(error: unknown): number | undefined {
  const { $metadata } = (error ?? {}) as { $metadata?: { httpStatusCode?: number } };
  return $metadata?.httpStatusCode;
}
