/**
 * Parses the URL of a server, and returns `undefined` for anything that a client could not connect to. Publishers do this
 * when they are created: a client that gets a bad URL fails later as if the server were down, and the error of `new URL`
 * carries the whole text, with the password.
 */
export function readServerUrl(text: unknown, protocols: readonly string[]): URL | undefined {
  if (typeof text !== 'string' || /[\0-\x20\x7f]/.test(text) || !URL.canParse(text)) return undefined;
  const url = new URL(text);
  if (!protocols.includes(url.protocol) || url.hostname === '' || url.port === '0') return undefined;
  return decoded(url.username) === undefined || decoded(url.password) === undefined ? undefined : url;
}

/** A host and its port, as in `kafka-1:9092` or `[::1]:9092`. It has no place for a password. */
export function isHostPort(text: unknown): boolean {
  if (typeof text !== 'string' || !/^[^\s/@?#\\]+:\d{1,5}$/.test(text)) return false;
  return isPort(Number(text.slice(text.lastIndexOf(':') + 1))) && URL.canParse(`http://${text}`);
}

export function isPort(port: unknown): boolean {
  return Number.isInteger(port) && (port as number) >= 1 && (port as number) <= 65_535;
}

/** The percent-decoded text; `undefined` where the encoding is invalid. */
export function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
