import { defineConfig } from 'vitest/config';
import SlowestFirst from './test/support/slowest-first.ts';
import SummaryReporter from './test/support/summary-reporter.ts';

/** The tests of what users must never lose. */
const promises = 'test/{guarantees,faults}/**/*.test.ts';
/** Those that take long: `npm run test:long`. */
const long =
  'test/faults/{advisory-locks,broker-outage,consumer-chaos,kafka-drain,lagging-standby,partition-conversion,rabbitmq-exchange-deleted,relay-chaos,standby,transactional-handler-hundred}.test.ts';
/** Those of `npm run test:long` that break nothing: they need a server that is slow to start. */
const longParts = 'test/schema/{registry-pairs,confluent-json-registry}.test.ts';
/** Those that need the packages of test/adapters. */
const adapters = 'test/adapters/**/*.test.ts';
/** Those that need the packages of test/nestjs. */
const nestjs = 'test/nestjs/*.test.ts';
/** Those that need the packages of test/frameworks. */
const frameworks = 'test/frameworks/**/*.test.ts';
const onlyWaits = { count: 1, condition: /^waited \d+ ms in vain/ };

const everyProject = {
  // Processes rather than threads: tests send signals and kill servers.
  pool: 'forks',
  testTimeout: 60_000,
  hookTimeout: 60_000,
} as const;

export default defineConfig({
  test: {
    globalSetup: ['test/support/global-setup.ts'],
    reporters: ['default', new SummaryReporter()],
    sequence: { sequencer: SlowestFirst },
    // More than the two cores of a small machine: most tests wait, for a lease to end or a server to start.
    maxWorkers: 4,
    // Relays log warnings to standard error by default: shown for tests that fail.
    silent: 'passed-only',
    // A failed test is tried once more, and the summary names it. In tests of guarantees only a wait that ran out on a busy
    // machine is tried again: a lost, duplicated or reordered event fails at once.
    projects: [
      { test: { ...everyProject, name: 'promises', include: [promises], exclude: [long], retry: onlyWaits } },
      { test: { ...everyProject, name: 'long', include: [long, longParts], retry: onlyWaits } },
      {
        test: {
          ...everyProject,
          name: 'parts',
          // The files of a worker share the modules of src, which takes three minutes less. A test restores what it changes.
          isolate: false,
          include: ['test/**/*.test.ts'],
          exclude: [promises, longParts, adapters, frameworks, nestjs, '**/node_modules/**'],
          retry: 1,
        },
      },
      {
        test: {
          ...everyProject,
          name: 'adapters',
          include: [adapters],
          exclude: ['**/node_modules/**'],
          globalSetup: ['test/adapters/global-setup.ts'],
          setupFiles: ['test/adapters/install.ts'],
          retry: 1,
        },
      },
      {
        test: {
          ...everyProject,
          name: 'nestjs',
          include: [nestjs],
          globalSetup: ['test/nestjs/global-setup.ts'],
          setupFiles: ['test/nestjs/install.ts'],
          retry: 1,
        },
      },
      {
        test: {
          ...everyProject,
          name: 'frameworks',
          include: [frameworks],
          exclude: ['**/node_modules/**'],
          globalSetup: ['test/frameworks/global-setup.ts'],
          setupFiles: ['test/frameworks/install.ts'],
          retry: 1,
        },
      },
    ],
  },
});
