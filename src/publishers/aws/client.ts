import type { OptionReader } from '../publisher-options.ts';

/** How SQS and SNS are reached. */
export interface AwsConnectionOptions {
  region?: string;
  endpoint?: string;
  credentials?: unknown;
  clientOptions?: object;
  client?: { send: unknown };
}

export function checkConnection<T extends AwsConnectionOptions>(
  options: T,
  read: OptionReader<T>,
  wanted: string,
): void {
  const { client, credentials, clientOptions } = options;
  const connection = { region: read.text('region'), endpoint: read.text('endpoint'), credentials, clientOptions };
  if (client === undefined) return;
  const both = Object.entries(connection).find(([, value]) => value !== undefined)?.[0];
  if (both) throw read.fail(`client and ${both} exclude each other.`);
  if (typeof client?.send !== 'function') throw read.fail(`client must be an ${wanted}.`);
}

/** The configuration of a client of our own. */
export function clientConfiguration<T extends AwsConnectionOptions>(
  options: T,
): NonNullable<T['clientOptions']> & Pick<T, 'region' | 'endpoint' | 'credentials'> {
  const { region, endpoint, credentials } = options;
  return {
    // The relay tries again by itself. One more attempt is for kept connections that the server closed.
    maxAttempts: 2,
    ...options.clientOptions,
    ...(region !== undefined && { region }),
    ...(endpoint !== undefined && { endpoint }),
    ...(credentials !== undefined && { credentials }),
  } as NonNullable<T['clientOptions']> & Pick<T, 'region' | 'endpoint' | 'credentials'>;
}
