import { defineConfig } from 'vitest/config';
import { startServerRecord } from './servers-used.ts';
import SummaryReporter from './summary-reporter.ts';

startServerRecord();

/** For tests of the test support itself: runs *.fixture.ts, on a machine that cannot have Redis. */
export default defineConfig({
  test: {
    include: ['test/support/*.fixture.ts'],
    reporters: [new SummaryReporter()],
    provide: { missingServices: { redis: 'there is none for this machine' } },
  },
});
