import type pg from 'pg';

/** What is used of a pg client beyond its public interface. Any of it may be missing in another version. */
interface WithStream {
  connection?: { stream?: { destroy(error?: Error): void; bytesRead?: unknown } };
}

/** The process id that the server announced at login. */
export function announcedPid(client: pg.Client): number | null | undefined {
  return (client as unknown as { processID?: number | null }).processID;
}

/**
 * How many bytes the connection has received. `undefined` if the driver does not report it: then only complete results count.
 */
export function bytesReceived(client: pg.Client): number | undefined {
  const bytes = (client as unknown as WithStream).connection?.stream?.bytesRead;
  return typeof bytes === 'number' ? bytes : undefined;
}

/** Closes immediately, without the Terminate message that a dead peer would never answer. Pending statements fail. */
export function destroy(client: pg.Client, error?: Error): void {
  client.removeAllListeners('error');
  client.on('error', () => {});
  const stream = (client as unknown as WithStream).connection?.stream;
  // The native client has no stream.
  if (stream) stream.destroy(error);
  else client.end().catch(() => {});
}

/** Closes with the Terminate message; a server that does not react is cut off. */
export async function endOrDestroy(client: pg.Client): Promise<void> {
  const timer = setTimeout(() => destroy(client), 1_000);
  await client.end().catch(() => {});
  clearTimeout(timer);
}
