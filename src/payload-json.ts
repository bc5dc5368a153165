import { PostcommitError } from './errors.ts';

/** The payload as JSON text that jsonb takes, of at most `bytesMax` bytes. */
export function payloadToJson(payload: unknown, bytesMax: number): string {
  let json: string | undefined;
  try {
    json = JSON.stringify(payload);
  } catch (cause) {
    throw new PostcommitError('POSTCOMMIT_E_PAYLOAD_NOT_JSON', `(${(cause as Error).message})`, { cause });
  }
  if (json === undefined) {
    throw new PostcommitError(
      'POSTCOMMIT_E_PAYLOAD_NOT_JSON',
      `payload is ${typeof payload}; use null for no payload.`,
    );
  }
  const bytes = Buffer.byteLength(json);
  if (bytes > bytesMax) {
    throw new PostcommitError('POSTCOMMIT_E_PAYLOAD_TOO_LARGE', `It has ${bytes} bytes, the limit is ${bytesMax}.`);
  }
  // JSON.stringify writes NUL and lone surrogates as escapes, which jsonb refuses. With an even number of backslashes
  // before the u, the payload itself contains a backslash.
  if (json.includes('\\u') && /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/.test(json)) {
    throw new PostcommitError('POSTCOMMIT_E_TEXT_NOT_STORABLE', 'It is in the payload.');
  }
  return json;
}
