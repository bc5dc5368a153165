import { readFileSync } from 'node:fs';
// Not `createRequire` by name: the usual banner of an ES module bundle declares that, and a bundle has one scope.
import nodeModule from 'node:module';
import { dirname, join } from 'node:path';
import { PostcommitError } from '../errors.ts';
import { isOlder } from '../version-order.ts';

/**
 * The oldest version of each client that passes its publisher's tests: `npm run test:clients` runs them with it and with
 * the newest one.
 */
export const oldestClients = {
  redis: '6.3.0',
  amqplib: '2.3.1',
  '@nats-io/transport-node': '3.0.2',
  '@nats-io/jetstream': '3.0.2',
  kafkajs: '2.2.4',
  '@confluentinc/kafka-javascript': '1.10.1',
  '@platformatic/kafka': '2.12.1',
  '@aws-sdk/client-sqs': '3.600.0',
  '@aws-sdk/client-sns': '3.600.0',
} as const;

export type ClientName = keyof typeof oldestClients;

/**
 * Loads a client that is an optional peer, when it is needed. package.json accepts any version of it, because npm enforces
 * the range of an optional peer on projects that use the package for something else. So the version is checked here.
 * `install` names every package that the publisher needs.
 */
export async function importClient<T>(
  name: ClientName,
  load: () => Promise<T>,
  { install = name as string, oldest = oldestClients[name] as string } = {},
): Promise<T> {
  const installed = installedVersion(name);
  if (installed !== undefined && isOlder(installed, oldest)) {
    throw new PostcommitError(
      'POSTCOMMIT_E_PACKAGE_TOO_OLD',
      `${name} ${installed} is installed, ${oldest} or later is needed. Run: npm install ${withLatest(install)}`,
    );
  }
  try {
    return await load();
  } catch (error) {
    if (!missingCodes.has((error as NodeJS.ErrnoException).code)) throw error;
    throw new PostcommitError('POSTCOMMIT_E_PACKAGE_MISSING', `Run: npm install ${install}`, { cause: error });
  }
}

/** Of import(), and of the require() that a bundler may put in its place. */
const missingCodes = new Set<string | undefined>(['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND']);

/** Without a version npm would keep the one that package.json names. */
function withLatest(packages: string): string {
  return packages.replace(/(?<=\S)(?=\s|$)/g, '@latest');
}

/** `undefined` where it is not known: not installed, or bundled. Most packages do not export their package.json. */
function installedVersion(name: string): string | undefined {
  try {
    let folder = dirname(nodeModule.createRequire(import.meta.url).resolve(name));
    for (;;) {
      const found = readPackage(folder);
      if (found?.name === name) return found.version;
      const parent = dirname(folder);
      if (parent === folder) return undefined;
      folder = parent;
    }
  } catch {
    return undefined;
  }
}

function readPackage(folder: string): { name?: string; version?: string } | undefined {
  try {
    return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { name?: string; version?: string };
  } catch {
    return undefined; // None in this folder.
  }
}
