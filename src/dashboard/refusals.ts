import { IncompleteReplay } from '../admin/incomplete-replay.ts';
import { PostcommitError } from '../errors.ts';
import { errorText } from '../telemetry/error-text.ts';
import { redact } from '../telemetry/redaction.ts';

/** Every change needs this header: a form or an image of another site cannot send it. */
export const requestHeader = 'x-postcommit-dashboard';

/** The code of an error that is not the user's mistake. */
export const unexpected = 'UNEXPECTED';
const retryAfterSeconds = '2';

const messages: Record<string, string> = {
  NOT_FOUND: 'There is no such route.',
  UNAUTHENTICATED: 'Sign in with a token of this dashboard.',
  READ_ONLY: 'You can read, but not change anything.',
  FOREIGN_REQUEST: `The header ${requestHeader} is missing, or the request comes from another site.`,
  HOST: 'Without authentication the dashboard answers only on localhost.',
  TOO_LARGE: 'The request is too large.',
  NO_SUCH_OUTBOX: 'There is no outbox of this name.',
  TOO_MANY_VIEWERS: 'Too many viewers are connected.',
};

export function refuse(status: number, code: string): Response {
  return refuseWith(status, { code, message: messages[code] ?? code });
}

export function refuseWith(status: number, error: { code: string; message: string }): Response {
  return Response.json({ error }, { status, headers: status === 503 ? { 'retry-after': retryAfterSeconds } : {} });
}

export function writeError(error: unknown): void {
  process.stderr.write(`postcommit dashboard: ${redact(errorText(error))}\n`);
}

/** Whether an error is one of Postcommit with no foreign text in it. What is not ours may name hosts or values. */
export function isOurs(error: unknown): error is PostcommitError {
  return error instanceof PostcommitError && !(error instanceof IncompleteReplay && !isOurs(error.cause));
}

export function describeError(error: unknown): { code: string; message: string } {
  if (isOurs(error)) return { code: error.code, message: error.message };
  const logged = 'The log of the server has the error.';
  if (error instanceof IncompleteReplay) return { code: error.code, message: error.messageWith(logged) };
  return { code: unexpected, message: `The request failed. ${logged}` };
}

export function statusOf(code: string): number {
  if (/UNREACHABLE|REFUSED|READ_ONLY|TOO_MANY_PAYLOADS/.test(code)) return 503;
  if (/NOT_FOUND|NO_SUCH/.test(code)) return 404;
  if (/NOT_A_DEAD_LETTER|REDACTED|IN_USE|IN_FLIGHT/.test(code)) return 409;
  if (/TOO_MANY/.test(code)) return 429;
  if (/PAYLOAD_CUT/.test(code)) return 413;
  return code === unexpected ? 500 : 400;
}
