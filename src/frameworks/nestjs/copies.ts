import { PostcommitError } from '../../errors.ts';
import { packageVersion } from '../../package-version.ts';

const registry = Symbol.for('postcommit.nestjs.copies');

/** Where this copy was loaded from; nothing in a CommonJS bundle. */
const location: string = import.meta.url ?? 'a bundle';

/** Versions by location, of all copies in this process. */
function copies(): Map<string, () => string> {
  const holder = globalThis as { [registry]?: Map<string, () => string> };
  holder[registry] ??= new Map();
  return holder[registry];
}

// The location without a query: test runners load a file again under another one.
copies().set(location.replace(/\?.*/, ''), packageVersion);

/**
 * Refuses a process with two copies of this file: each has classes of its own, so what one provides the other cannot inject, and
 * Nest would only say that it cannot resolve Outbox.
 */
export function requireOneCopy(): void {
  if (copies().size < 2) return;
  const list = [...copies()].map(([place, version]) => `${version()} in ${place}`);
  throw new PostcommitError('POSTCOMMIT_E_TWO_COPIES', `Loaded copies: ${list.join(', ')}.`);
}
