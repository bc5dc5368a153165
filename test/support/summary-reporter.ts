import type { Reporter, TestModule } from 'vitest/node';
import { takeServerRecord } from './servers-used.ts';

/**
 * Ends the output with plain lines: the tests that passed only at their second attempt, the servers that were used, and
 * `N passed, N failed[, N skipped]`.
 */
export default class SummaryReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    const count = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    for (const module of modules) {
      // Of a file that could not be loaded, or whose hooks failed, no test is red: the file itself is.
      let failedTests = 0;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (test.diagnostic()?.flaky) process.stdout.write(`passed at the second attempt: ${test.fullName}\n`);
        if (state === 'passed') count.passed++;
        else if (state === 'skipped') count.skipped++;
        else failedTests++;
      }
      const failedByItself = failedTests === 0 && module.state() === 'failed';
      count.failed += failedByItself ? 1 : failedTests;
    }
    const servers = takeServerRecord();
    if (servers.length > 0) process.stdout.write(`servers: ${servers.join(', ')}\n`);
    const skipped = count.skipped > 0 ? `, ${count.skipped} skipped` : '';
    process.stdout.write(`${count.passed} passed, ${count.failed} failed${skipped}\n`);
  }
}
