import type { Socket } from 'node:net';

/** With a reset where that is possible, so that the system does not go on sending what it has buffered. */
export function cutSocket(socket: Socket): void {
  if (!socket.connecting && !('encrypted' in socket)) socket.resetAndDestroy();
  else socket.destroy();
}
