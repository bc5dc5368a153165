import { spawn } from 'node:child_process';
import { pidFile } from './server-process.ts';

// It waits on a pipe that only this process holds open. A line means "released, nothing to do"; end of file without
// one means that this process is gone, for whatever reason.
const script = `
read -r released && exit 0
if read -r pid <"$1"; then
  kill -s KILL -- "-$pid"
  tries=0
  while kill -s 0 -- "-$pid" && [ "$tries" -lt 100 ]; do tries=$((tries + 1)); sleep 0.05; done
fi
rm -rf "$2"
`;

/** Ends the server of this folder and removes the folder once this process has ended, even by SIGKILL. */
export function startGuardian(folder: string): { release(): void } {
  const shell = spawn('/bin/sh', ['-c', script, 'postcommit-guardian', pidFile(folder), folder], {
    // Its own session, or Ctrl-C in the terminal would end it together with this process.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
    cwd: '/',
  });
  shell.on('error', () => {}); // No /bin/sh: then no server starts either.
  shell.stdin.on('error', () => {});
  shell.unref();
  // At run time it is a socket, which would otherwise keep this process from ending.
  (shell.stdin as unknown as NodeJS.RefCounted).unref();
  return {
    release() {
      shell.stdin.end('released\n');
    },
  };
}
