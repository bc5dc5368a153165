import { describe, expect, it } from 'vitest';
import { IncompleteReplay } from '../../src/admin/incomplete-replay.ts';
import { exitCodeOf, exitCodes, exitCodesHelp } from '../../src/cli/exit-codes.ts';
import { PostcommitError } from '../../src/errors.ts';
import { exitCodeOfSignal } from '../../src/process/stop-signals.ts';

it('the help lists an exit code for each signal that ends a command', () => {
  expect(exitCodesHelp).toContain(`  ${(['SIGHUP', 'SIGINT', 'SIGTERM'] as const).map(exitCodeOfSignal).join(', ')}  `);
});

describe('the exit code of a replay that failed on its way', () => {
  it.each([
    ['POSTCOMMIT_E_DATABASE_UNREACHABLE', exitCodes.database],
    ['POSTCOMMIT_E_MIGRATION_MISSING', exitCodes.notMigrated],
    ['POSTCOMMIT_E_LOCK_TIMEOUT', exitCodes.failed],
    [undefined, exitCodes.failed],
  ] as const)('is that of its cause %s: %i', (known, code) => {
    const cause = known === undefined ? new Error('unknown') : new PostcommitError(known);
    expect(exitCodeOf(cause)).toBe(code);
    expect(exitCodeOf(new IncompleteReplay(cause, 1_000, 'cursor'))).toBe(code);
  });
});
