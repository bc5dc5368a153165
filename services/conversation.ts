import { connect } from 'node:net';

const timeoutMs = 3_000;

/** Sends, and resolves with what has come since, as soon as that is `complete`. */
export type Ask = (message: string | Uint8Array, complete: (received: Buffer) => boolean) => Promise<Buffer>;

/** A short conversation over TCP. Rejects when the server refuses, hangs up or does not answer in time. */
export async function converse<T>(host: string, port: number, talk: (ask: Ask) => Promise<T>): Promise<T> {
  const socket = connect({ host, port });
  let received = Buffer.alloc(0);
  let wake = () => {};
  let failure: Error | undefined;
  const fail = (error: Error) => {
    failure ??= error;
    wake();
  };
  socket.setTimeout(timeoutMs, () => fail(new Error(`no answer from ${host}:${port} within ${timeoutMs} ms`)));
  socket.on('error', fail);
  socket.on('close', () => fail(new Error(`${host}:${port} closed the connection`)));
  socket.on('data', (chunk) => {
    received = Buffer.concat([received, chunk]);
    wake();
  });
  const ask: Ask = async (message, complete) => {
    // Before anything was asked it may have greeted already; afterwards every answer starts anew.
    if (message.length > 0) {
      received = Buffer.alloc(0);
      socket.write(message);
    }
    while (!complete(received)) {
      if (failure) throw failure;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    return received;
  };
  try {
    return await talk(ask);
  } finally {
    socket.destroy();
  }
}
