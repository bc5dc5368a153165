#!/usr/bin/env node
import { runCli } from './program.ts';
import { processTerminal } from './terminal.ts';

let exitCode = 0;

// While no command watches its output itself (OutputWatch). `postcommit events | head` closes the pipe early; that is not
// an error. Any other failure is one: the output is incomplete.
function exit(outputError?: NodeJS.ErrnoException | null): void {
  process.exit(exitCode === 0 && outputError && outputError.code !== 'EPIPE' ? 1 : exitCode);
}
process.stdout.on('error', exit);
// It cannot be reported anywhere. The exit code still tells the result of the command.
process.stderr.on('error', () => {});

exitCode = await runCli(process.argv.slice(2), processTerminal());
// A config file may have opened connections that would keep the process running. The empty write comes back when all
// before it has left.
process.stdout.write('', exit);
