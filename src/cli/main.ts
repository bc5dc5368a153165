#!/usr/bin/env node
import { runCli } from './program.ts';
import { processTerminal } from './terminal.ts';

let exitCode = 0;

// For commands that do not watch their output (OutputWatch). `postcommit events | head` closes the pipe early, which is
// not an error. Any other write failure is: the output is incomplete.
function exit(outputError?: NodeJS.ErrnoException | null): void {
  process.exit(exitCode === 0 && outputError && outputError.code !== 'EPIPE' ? 1 : exitCode);
}
process.stdout.on('error', exit);
// Nothing is left to report it to. The exit code still has the result of the command.
process.stderr.on('error', () => {});

exitCode = await runCli(process.argv.slice(2), processTerminal());
// A config file may have opened connections that keep the process running. The callback of the empty write runs when all
// output before it is written.
process.stdout.write('', exit);
