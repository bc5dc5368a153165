const reasonCharactersMax = 500;

/** The text of an error for operators, cut to a length that fits a table. */
export function reasonOf(error: unknown): string {
  return cutReason(wordsOf(error));
}

export function cutReason(words: string): string {
  return words.length <= reasonCharactersMax ? words : `${words.slice(0, reasonCharactersMax - 1)}…`;
}

function wordsOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // A host with two addresses fails with one error for each, and no message of its own.
  if (error instanceof AggregateError && error.errors.length > 0) return wordsOf(error.errors[0]);
  const { code } = error as NodeJS.ErrnoException;
  return error.message || (typeof code === 'string' && code) || error.name;
}

/** Whether the server's certificate is not trusted. Waiting does not change that. */
export function isUntrustedCertificate(error: unknown): boolean {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code === 'string' && certificateCodes.test(code);
}

const certificateCodes =
  /^(?:CERT_|ERR_TLS_CERT_|UNABLE_TO_(?:VERIFY|GET_ISSUER)|SELF_SIGNED_CERT|DEPTH_ZERO_SELF_SIGNED)|^(?:HOSTNAME_MISMATCH|INVALID_CA)$/;

/** Resolves like `promise`, or rejects once the signal is aborted. The promise is then ignored. */
export async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  promise.catch(() => {});
  if (signal.aborted) throw aborted(signal);
  let stop = () => {};
  const abort = new Promise<never>((_, reject) => {
    stop = () => reject(aborted(signal));
  });
  signal.addEventListener('abort', stop, { once: true });
  try {
    return await Promise.race([promise, abort]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

function aborted({ reason }: AbortSignal): Error {
  if (!(reason instanceof Error) || reason.name === 'AbortError') return new Error('The call was aborted.');
  return reason.name === 'TimeoutError' ? new Error('No answer in time.') : reason;
}
