import { onTestFinished } from 'vitest';
import { listenInProcess } from '../../src/outbox/emitting/notify.ts';

/** Counts the wake-ups of relays in this process until the test has finished. */
export function countNotifications(): () => number {
  let count = 0;
  onTestFinished(listenInProcess('postcommit', () => count++));
  return () => count;
}
