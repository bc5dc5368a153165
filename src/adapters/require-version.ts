import { PostcommitError } from '../errors.ts';
import { isOlder } from '../version-order.ts';

/** Refuses a client that is older than what the adapter is tested with. A version that is not known is accepted. */
export function requireVersion(name: string, version: string | undefined, oldest: string): void {
  if (version === undefined || !isOlder(version, oldest)) return;
  throw new PostcommitError(
    'POSTCOMMIT_E_PACKAGE_TOO_OLD',
    `This is ${name} ${version}, and ${oldest} or later is needed. Run: npm install ${name}@latest`,
  );
}
