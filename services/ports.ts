import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

const attemptsMax = 50;

/**
 * A free port on 127.0.0.1: `usual` if it is free. Others come from below the range that outgoing connections get
 * theirs from, so that a server which is stopped for a while finds its port again.
 */
export async function choosePort(usual?: number): Promise<number> {
  if (usual !== undefined && (await isPortFree(usual))) return usual;
  for (let attempt = 1; attempt <= attemptsMax; attempt++) {
    const port = randomInt(15_000, 32_000);
    if (await isPortFree(port)) return port;
  }
  throw new Error(`None of ${attemptsMax} ports tried on 127.0.0.1 is free.`);
}

function isPortFree(port: number): Promise<boolean> {
  return new Promise((answer) => {
    const probe = createServer();
    probe.once('error', () => answer(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => answer(true)));
  });
}
