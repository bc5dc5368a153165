import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * Files that take longer than half a minute on two cores, the longest first. A fresh clone has no record of durations, and
 * a long file that starts last keeps one worker busy while the others have nothing left.
 */
const slowest = [
  'test/examples/examples.test.ts',
  'test/schema/compatibility-promise.test.ts',
  'test/cli/operate.test.ts',
  'test/relay/transactional-handlers.test.ts',
  'test/faults/takeover.test.ts',
  'test/relay/lost-notifications.test.ts',
  'test/guarantees/g10-clean-stop.test.ts',
  'test/admin/undelivered.test.ts',
  'test/package/installed.test.ts',
  'test/scripts/check-layers.test.ts',
  'test/cli/relay-output.test.ts',
  'test/guarantees/g02-outage.test.ts',
  'test/guarantees/g06-outage.test.ts',
  'test/faults/consumer-kills.test.ts',
  'test/nestjs/nestjs.test.ts',
  'test/adapters/migrations.test.ts',
  'test/relay/large-payloads.test.ts',
];

/** Tests whose packages may still be being installed when the run starts. */
const last = ['adapters', 'nestjs', 'frameworks'];

export default class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId, project }: TestSpecification): number => {
      const place = slowest.findIndex((file) => moduleId.endsWith(`/${file}`));
      if (place >= 0) return place;
      return slowest.length + (last.includes(project.name) ? 1 : 0);
    };
    const order = ({ project }: TestSpecification) => project.config.sequence.groupOrder;
    const sorted = await super.sort(files);
    return sorted.sort((a, b) => order(a) - order(b) || rank(a) - rank(b));
  }
}
