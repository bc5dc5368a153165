import { PostcommitError } from '../../errors.ts';
import { shown } from '../../format.ts';
import { unknownOption } from '../../suggest.ts';
import { type ResolvedRetry, resolveRetry } from '../event/retry-policy.ts';
import { HandlerIndex, isPattern } from './handler-index.ts';
import { HandlerLimiter } from './handler-limiter.ts';
import type { BatchHandler, Handler, HandlerPolicy, Handlers, HandlerWithPolicy } from './handlers.ts';

/** A handler with its policy, as the relay uses it. */
export interface ResolvedHandler {
  /** By which progress is kept. A handler of a pattern has its target's name: a type may have one of the same name. */
  name: string;
  /** How relays register it, and how events owe it. A destination's name has no colon, so the two never collide. */
  target: string;
  handle: Handler;
  /** Set for a batch handler, which has no `handle`. */
  batch: ResolvedBatch | undefined;
  /** Whether it is called in the transaction that settles the event; how many connections it may use. */
  connectionsMax: number | undefined;
  timeoutMs: number;
  retry: ResolvedRetry;
  /** Shared by all of its calls in this relay; `undefined` without limits. */
  limiter: HandlerLimiter | undefined;
}

export interface ResolvedBatch {
  handle: BatchHandler['handleBatch'];
  sizeMax: number;
  waitMs: number;
}

/** A handler whose events wait in a line of their own. */
export interface LimitedHandler {
  limiter: HandlerLimiter;
  batch: ResolvedBatch | undefined;
}

/** Every batch handler has a limiter. */
export type BatchedHandler = ResolvedHandler & { limiter: HandlerLimiter; batch: ResolvedBatch };

export function isBatched(handler: ResolvedHandler): handler is BatchedHandler {
  return handler.batch !== undefined;
}

export function isLimited(handler: ResolvedHandler): handler is ResolvedHandler & LimitedHandler {
  return handler.limiter !== undefined;
}

/** The relay's options that apply to handlers without their own. */
export interface HandlerDefaults {
  deliverTimeoutMs: number;
  retry: ResolvedRetry;
}

/** Calls at once of a transactional handler: each has a connection of its own. */
const transactionsDefault = 10;

/** How a handler is named among the targets of a relay. */
export function handlerTarget(type: string, handler: string): string {
  return `${type}:${handler}`;
}

/** Checks the handlers once. */
export function resolveHandlers(handlers: Handlers, defaults: HandlerDefaults): HandlerIndex {
  const example = "e.g. { 'order.created': { 'send-receipt': async (event) => {} } }";
  if (!hasNames(handlers)) throw badHandlers(`handlers must be an object of event types, ${example}`);
  const byType = new Map<string, ResolvedHandler[]>();
  for (const [type, named] of Object.entries(handlers)) {
    if (type === '') throw badHandlers("handlers[''] has no event type. Use '*' for every type");
    if (type.slice(0, -1).includes('*')) {
      throw badHandlers(
        `handlers['${type}'] has a * that is not at its end. Use a type, a pattern such as 'order.*', or '*'`,
      );
    }
    if (!hasNames(named)) throw badHandlers(`handlers['${type}'] must be an object of named handlers, ${example}`);
    const list = Object.entries(named).map(([name, given]) => resolveHandler(type, name, given, defaults));
    if (list.length > 0) byType.set(type, list);
  }
  return new HandlerIndex(byType);
}

function resolveHandler(
  type: string,
  name: string,
  given: Handler | HandlerWithPolicy | BatchHandler,
  defaults: HandlerDefaults,
): ResolvedHandler {
  if (name === '' || name.includes('\0') || !name.isWellFormed()) {
    throw badHandlers(`handlers['${type}'] has a name that is empty or cannot be stored as text`);
  }
  if (name.includes('*'))
    throw badHandlers(`handlers['${type}']['${name}'] has a * in its name, which only types may have`);
  const option = `handlers['${type}']['${name}']`;
  const policy: Policy = typeof given === 'function' ? { handle: given } : given;
  if (!hasNames(policy) || typeof (policy.handle ?? policy.handleBatch) !== 'function') {
    throw badHandlers(`${option} must be a function, or an object such as { handle: async (event) => {}, timeoutMs }`);
  }
  const unknown = unknownOption(policy, policyFields, option);
  if (unknown !== undefined) throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', unknown);
  if (policy.handle !== undefined && policy.handleBatch !== undefined) {
    throw badHandlers(`${option} has handle and handleBatch. Give it one of them, or make it two handlers`);
  }
  const { handle = () => {}, timeoutMs = defaults.deliverTimeoutMs, retry, rateMax, transactional = false } = policy;
  checkTransactional(policy, option);
  const { inFlightMax = transactional ? transactionsDefault : undefined } = policy;
  if (inFlightMax !== undefined) whole(inFlightMax, 10_000, `${option}.inFlightMax`);
  if (rateMax !== undefined && !(typeof rateMax === 'number' && rateMax >= 0.001 && rateMax <= 1_000_000)) {
    throw badHandlers(
      `${option}.rateMax must be a number of calls per second from 0.001 to 1000000. Got ${shown(rateMax)}`,
    );
  }
  const target = handlerTarget(type, name);
  const batch = resolveBatch(policy, option);
  const isUnlimited = inFlightMax === undefined && rateMax === undefined && batch === undefined;
  return {
    name: isPattern(type) ? target : name,
    target,
    handle,
    batch,
    connectionsMax: transactional ? inFlightMax : undefined,
    timeoutMs: whole(timeoutMs, 86_400_000, `${option}.timeoutMs`),
    retry:
      retry === undefined ? defaults.retry : resolveRetry(retry, { option: `${option}.retry`, base: defaults.retry }),
    limiter: isUnlimited ? undefined : new HandlerLimiter({ inFlightMax, rateMax }),
  };
}

function checkTransactional({ transactional, handleBatch }: Policy, option: string): void {
  if (transactional !== undefined && typeof transactional !== 'boolean') {
    throw badHandlers(`${option}.transactional must be true or false. Got ${shown(transactional)}`);
  }
  if (transactional && handleBatch !== undefined) {
    throw badHandlers(
      `${option} has transactional and handleBatch, but each event has a transaction of its own. Use handle instead of handleBatch`,
    );
  }
}

function resolveBatch(policy: Policy, option: string): ResolvedBatch | undefined {
  const { handleBatch, batchSizeMax, batchWaitMs } = policy;
  if (handleBatch === undefined) {
    if (batchSizeMax === undefined && batchWaitMs === undefined) return undefined;
    throw badHandlers(`${option} has batchSizeMax or batchWaitMs, which need handleBatch instead of handle`);
  }
  return {
    handle: handleBatch,
    sizeMax: whole(batchSizeMax === undefined ? 100 : batchSizeMax, 10_000, `${option}.batchSizeMax`),
    waitMs: whole(batchWaitMs === undefined ? 20 : batchWaitMs, 60_000, `${option}.batchWaitMs`, 0),
  };
}

/** What a handler may be given with, whichever kind it is. */
type Policy = HandlerPolicy &
  Partial<Record<'handle', Handler>> &
  Partial<Omit<BatchHandler, keyof HandlerPolicy | 'handle'>>;

const policyFields: readonly string[] = [
  ...(['handle', 'handleBatch', 'batchSizeMax', 'batchWaitMs'] satisfies (keyof Policy)[]),
  ...(['transactional', 'timeoutMs', 'retry', 'inFlightMax', 'rateMax'] satisfies (keyof HandlerPolicy)[]),
];

function whole(value: unknown, max: number, option: string, min = 1): number {
  if (Number.isInteger(value) && (value as number) >= min && (value as number) <= max) return value as number;
  throw badHandlers(`${option} must be a whole number from ${min} to ${max}. Got ${shown(value)}`);
}

/** An array or a Map would pass as an object with numbers as names, or without names. */
function hasNames(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !(Symbol.iterator in value);
}

function badHandlers(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `${detail}.`);
}
