import type { OptionReader } from '../publisher-options.ts';
import { readServerUrl } from '../server-url.ts';

/** How to connect to SQS and SNS. */
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
  if (connection.region !== undefined && !/^[a-z\d-]{1,63}$/i.test(connection.region)) {
    throw read.fail('region must be the name of a region, e.g. eu-central-1.');
  }
  if (connection.endpoint !== undefined && !isAwsUrl(connection.endpoint)) {
    throw read.fail('endpoint must be an http or https URL, without user and password.');
  }
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
    // The relay retries. The second attempt is for kept connections that the server closed.
    maxAttempts: 2,
    ...options.clientOptions,
    ...(region !== undefined && { region }),
    ...(endpoint !== undefined && { endpoint }),
    ...(credentials !== undefined && { credentials }),
  } as NonNullable<T['clientOptions']> & Pick<T, 'region' | 'endpoint' | 'credentials'>;
}

/** Of an endpoint or a queue. AWS signs requests and uses no password from a URL, so one there would only end up in logs. */
export function isAwsUrl(text: string): boolean {
  const url = readServerUrl(text, ['http:', 'https:']);
  return url !== undefined && url.username === '' && url.password === '';
}
