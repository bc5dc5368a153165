import { AsyncLocalStorage } from 'node:async_hooks';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import type { ConnectionOptions, NatsConnection } from '@nats-io/transport-node';
import { untilAborted } from '../failure.ts';

/**
 * Connects to NATS until the signal is aborted. The client cannot be told to stop, and when a server accepts the
 * connection and says nothing it stops waiting without closing the socket: sockets would pile up in an outage. So the
 * sockets that it opens are recorded, and destroyed when they are not needed.
 */
export async function connectNats(
  connect: (options: ConnectionOptions) => Promise<NatsConnection>,
  options: ConnectionOptions,
  signal: AbortSignal,
): Promise<NatsConnection> {
  // Of this attempt alone, and disabled behind it: a storage in use slows every promise of the process down.
  const dialling = new AsyncLocalStorage<true>();
  const sockets = new Set<Socket>();
  const stop = new AbortController();
  const onSocket = (event: unknown) => {
    if (!dialling.getStore()) return;
    const { socket } = event as { socket: Socket };
    sockets.add(socket);
    if (stop.signal.aborted) socket.destroy();
  };
  subscribe('net.client.socket', onSocket);
  // The client hands TLS options on to Node.js, which destroys with this signal what it made itself.
  const tls = options.tls && { tls: { ...options.tls, signal: stop.signal } };
  const connecting = dialling.run(true, () => connect({ ...options, ...tls }));
  connecting
    .then((late) => (stop.signal.aborted ? late.close() : undefined))
    .catch(() => {})
    .finally(() => {
      unsubscribe('net.client.socket', onSocket);
      dialling.disable();
    });
  try {
    return await untilAborted(connecting, signal);
  } catch (error) {
    stop.abort();
    for (const socket of sockets) socket.destroy();
    throw error;
  }
}
