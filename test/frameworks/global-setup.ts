import { runInBackground } from '../support/run-in-background.ts';

/** Other tests run meanwhile. */
export default function setup(): () => Promise<void> {
  return runInBackground(new URL('install.ts', import.meta.url));
}
