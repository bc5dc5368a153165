import type { IncomingMessage as NodeRequest } from 'node:http';

export class BodyTooLarge extends Error {}
export class BodyTooSlow extends Error {}

/** How much of a body is read. */
export interface BodyLimits {
  readonly bytesMax: number;
  /** Aborted when its time is over. The rest is not read. */
  readonly tooSlow: AbortSignal;
  /** Called before that many more bytes are allocated. It may abort `tooSlow`: then they are not. */
  reserve(bytes: number): void;
}

/** The bytes of a request as they came. */
export async function bodyOfRequest(request: Request, limits: BodyLimits): Promise<Uint8Array> {
  if (request.bodyUsed) throw alreadyRead();
  refuseLength(request.headers.get('content-length'), limits.bytesMax);
  return request.body === null ? Buffer.alloc(0) : gather(request.body as AsyncIterable<Uint8Array>, limits);
}

/**
 * The same of a request of `node:http`. A parser that ran before may have left the bytes: `express.raw()` as `body`, NestJS and Google
 * Cloud Functions as `rawBody`.
 */
export async function bodyOfNode(request: NodeRequest, limits: BodyLimits): Promise<Uint8Array | string> {
  const { rawBody, body } = request as { rawBody?: unknown; body?: unknown };
  for (const given of [rawBody, body]) {
    if (typeof given !== 'string' && !(given instanceof Uint8Array)) continue;
    if (Buffer.byteLength(given) > limits.bytesMax) throw new BodyTooLarge();
    return given;
  }
  if (request.readableEnded || request.destroyed) throw alreadyRead();
  refuseLength(request.headers['content-length'], limits.bytesMax);
  // Without destroying the request at the end: its connection has to carry the answer.
  return gather(request.iterator({ destroyOnReturn: false }), limits);
}

/** Copies the chunks into one buffer: in a list, a chunk of one byte holds about 150 bytes, and one would be counted. */
async function gather(chunks: AsyncIterable<Uint8Array>, limits: BodyLimits): Promise<Buffer> {
  const iterator = chunks[Symbol.asyncIterator]();
  let buffer: Buffer = Buffer.alloc(0);
  let bytes = 0;
  try {
    for (;;) {
      const next = await unlessAborted(iterator.next(), limits.tooSlow);
      // Without the spare capacity: the body is kept until the event is processed.
      if (next.done) return bytes === buffer.length ? buffer : Buffer.from(buffer.subarray(0, bytes));
      const needed = bytes + next.value.byteLength;
      if (needed > limits.bytesMax) throw new BodyTooLarge();
      if (needed > buffer.length) buffer = grow(buffer, needed, limits);
      buffer.set(next.value, bytes);
      bytes = needed;
    }
  } finally {
    // A read in progress ends with the connection.
    iterator.return?.().catch(() => {});
  }
}

function grow(buffer: Buffer, needed: number, { bytesMax, tooSlow, reserve }: BodyLimits): Buffer {
  const capacity = Math.min(Math.max(needed, buffer.length * 2), bytesMax);
  reserve(capacity - buffer.length);
  if (tooSlow.aborted) throw new BodyTooSlow();
  const grown = Buffer.allocUnsafe(capacity);
  grown.set(buffer);
  return grown;
}

async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let abort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(new BodyTooSlow());
  });
  work.catch(() => {});
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

function refuseLength(contentLength: string | null | undefined, bytesMax: number): void {
  if (Number(contentLength ?? 0) > bytesMax) throw new BodyTooLarge();
}

function alreadyRead(): Error {
  return new Error(
    'The body has already been read. The signature covers the raw bytes, so call the consumer before any body parser.',
  );
}
