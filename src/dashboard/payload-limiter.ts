import { PostcommitError } from '../errors.ts';
import { Slots } from './slots.ts';

/** A payload has up to 16,777,216 characters, and there are several copies of it while it is read, parsed and redacted. */
const readingMax = 2;
/** Requests that wait for their turn: one of them holds no payload yet, but maybe a connection. */
const waitingMax = 50;
const waitMs = 5_000;
/** Payloads being sent or received. Each is one copy, for as long as the client takes. */
const transfersMax = 8;
const downloadMs = 300_000;
const chunkCharacters = 65_536;

/**
 * Bounds the payloads that are in memory at once, however many requests there are. What exceeds the limits fails with
 * POSTCOMMIT_E_TOO_MANY_PAYLOADS.
 */
export class PayloadLimiter {
  readonly #reading = new Slots({ inUseMax: readingMax, waitingMax, waitMs });
  readonly #transfers = new Slots({ inUseMax: transfersMax, waitingMax: 0, waitMs: 0 });

  /** Runs `work`, which reads a payload, when there is room for another one. */
  async read<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return runIn(await this.#reading.take(signal), work);
  }

  /** Runs `work`, which receives a payload in the body of a request. */
  async receive<T>(work: () => Promise<T>): Promise<T> {
    return runIn(await this.#transfers.take(), work);
  }

  /**
   * The response with the JSON text that `read` returns, as a file. It is sent in chunks, as fast as the client reads them, within
   * five minutes.
   */
  async download(request: Request, read: () => Promise<{ name: string; text: string }>): Promise<Response> {
    const release = await this.#transfers.take();
    if (release === undefined) throw new PostcommitError('POSTCOMMIT_E_TOO_MANY_PAYLOADS');
    try {
      const { name, text } = await this.read(request.signal, read);
      const headers = { 'content-type': 'application/json', 'content-disposition': `attachment; filename="${name}"` };
      if (request.method === 'GET') return new Response(textStream(text, release), { headers });
      release(); // HEAD: the body would never be read.
      return new Response(null, { headers });
    } catch (error) {
      release();
      throw error;
    }
  }
}

async function runIn<T>(release: (() => void) | undefined, work: () => Promise<T>): Promise<T> {
  if (release === undefined) throw new PostcommitError('POSTCOMMIT_E_TOO_MANY_PAYLOADS');
  try {
    return await work();
  } finally {
    release();
  }
}

/** Calls `end` once the text is sent, or the client is gone or too slow. */
function textStream(text: string, end: () => void): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  let rest = text;
  let timer: NodeJS.Timeout | undefined;
  const stop = () => {
    clearTimeout(timer);
    rest = '';
    end();
  };
  return new ReadableStream<Uint8Array>({
    start(controller) {
      timer = setTimeout(() => {
        stop();
        controller.error(new Error('the client reads too slowly'));
      }, downloadMs);
      timer.unref();
    },
    pull(controller) {
      const chunk = wholeCharacters(rest.slice(0, chunkCharacters));
      if (chunk === '') {
        stop();
        return controller.close();
      }
      rest = rest.slice(chunk.length);
      controller.enqueue(encoder.encode(chunk));
    },
    cancel: stop,
  });
}

/** Without half a surrogate pair at its end, which would be encoded as a replacement character. */
function wholeCharacters(text: string): string {
  const last = text.charCodeAt(text.length - 1);
  return text.length > 1 && last >= 0xd800 && last <= 0xdbff ? text.slice(0, -1) : text;
}
