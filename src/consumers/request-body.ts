import type { IncomingMessage as NodeRequest } from 'node:http';

export class BodyTooLarge extends Error {}

/** The bytes of a request as they came. */
export async function bodyOfRequest(request: Request, bytesMax: number): Promise<Uint8Array> {
  if (request.bodyUsed) throw alreadyRead();
  refuseLength(request.headers.get('content-length'), bytesMax);
  return gather((request.body ?? []) as AsyncIterable<Uint8Array>, bytesMax);
}

/**
 * The same of a request of `node:http`. A parser that ran before may have left the bytes: `express.raw()` as `body`, NestJS and Google
 * Cloud Functions as `rawBody`.
 */
export async function bodyOfNode(request: NodeRequest, bytesMax: number): Promise<Uint8Array | string> {
  const { rawBody, body } = request as { rawBody?: unknown; body?: unknown };
  for (const given of [rawBody, body]) {
    if (typeof given !== 'string' && !(given instanceof Uint8Array)) continue;
    if (Buffer.byteLength(given) > bytesMax) throw new BodyTooLarge();
    return given;
  }
  if (request.readableEnded || request.destroyed) throw alreadyRead();
  refuseLength(request.headers['content-length'], bytesMax);
  // Without destroying the request at the end: its connection has to carry the answer.
  return gather(request.iterator({ destroyOnReturn: false }), bytesMax);
}

async function gather(chunks: AsyncIterable<Uint8Array>, bytesMax: number): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.byteLength;
    if (bytes > bytesMax) throw new BodyTooLarge();
    parts.push(chunk);
  }
  return Buffer.concat(parts);
}

function refuseLength(contentLength: string | null | undefined, bytesMax: number): void {
  if (Number(contentLength ?? 0) > bytesMax) throw new BodyTooLarge();
}

function alreadyRead(): Error {
  return new Error(
    'The body has already been read. The signature covers the raw bytes, so call the consumer before any body parser.',
  );
}
