#!/usr/bin/env node
import { runCli } from './program.ts';
import { processTerminal } from './terminal.ts';

// `postcommit events | head` closes the pipe early; that is not an error.
process.stdout.on('error', () => process.exit(0));

const exitCode = await runCli(process.argv.slice(2), processTerminal());
// A config file may have opened connections that would keep the process running. The empty write comes back when all
// before it has left.
process.stdout.write('', () => process.exit(exitCode));
