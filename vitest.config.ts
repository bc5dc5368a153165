import { defineConfig } from 'vitest/config';
import SummaryReporter from './test/support/summary-reporter.ts';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    reporters: ['default', new SummaryReporter()],
    // Processes rather than threads: tests send signals and kill servers.
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // A wait that ran out on a busy machine is tried once more, and the summary names the test. Nothing else is: a lost,
    // doubled or reordered event fails at once.
    retry: { count: 1, condition: /^waited \d+ ms in vain/ },
  },
});
