import type { ServerList } from '../../database/connection-string.ts';
import type { ErrorCode } from '../../errors.ts';
import { PostcommitError } from '../../errors.ts';
import type { LostRelay } from '../../outbox/delivering/declare-relays-lost.ts';
import type { Logger } from '../../telemetry/logging.ts';
import type { HeartbeatOptions, Registration } from './heartbeat.ts';

/** What the thread is started with. */
export interface ThreadData extends Pick<HeartbeatOptions, 'schema' | 'name' | 'leaseMs' | 'sessionLock' | 'hostId'> {
  /** A password that is a function is left out; the thread asks for its value. */
  servers: ServerList;
  asksForPassword: boolean;
  blockedMaxMs: number;
  memory: SharedArrayBuffer;
}

/** A call that is answered by `done`, with the same number. */
export type ThreadCall = { call: 'start' } | { call: 'keepAlive'; registration: Registration } | { call: 'stop' };

export type ToThread =
  | (ThreadCall & { number: number })
  | { tell: 'drop' }
  | { tell: 'report'; stats: unknown }
  | PasswordAnswer;

export interface PasswordAnswer {
  tell: 'password';
  number: number;
  password?: string;
  error?: ErrorFields;
}

export type FromThread =
  | { tell: 'done'; number: number; error?: ErrorFields }
  | { tell: 'lost'; token: string }
  | { tell: 'relayLost'; relay: LostRelay }
  | { tell: 'disconnected'; error: string }
  | { tell: 'askPassword'; number: number; server: number }
  | { tell: 'log'; level: keyof Logger; fields: object; message: string };

/** What is left of an error between threads: a clone would lose its code. */
export interface ErrorFields {
  message: string;
  code?: string;
  /** Of a PostcommitError. */
  detail?: string;
}

export function errorFields(error: unknown): ErrorFields {
  if (error instanceof PostcommitError) return { message: error.message, code: error.code, detail: error.detail };
  const { message, code } = (error ?? {}) as { message?: string; code?: unknown };
  return { message: message ?? String(error), ...(typeof code === 'string' && { code }) };
}

export function errorOf({ message, code, detail }: ErrorFields): Error {
  if (detail !== undefined) return new PostcommitError(code as ErrorCode, detail);
  return Object.assign(new Error(message), code === undefined ? {} : { code });
}
