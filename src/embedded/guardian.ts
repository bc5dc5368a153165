import { spawn } from 'node:child_process';
import { letProcessEnd } from './program.ts';

// It waits on a pipe that only this process holds open. A line means "released, nothing to do"; end of file without
// one means that this process is gone, for whatever reason.
const script = `
read -r released && exit 0
pid=$(head -n 1 "$1/postmaster.pid" 2>/dev/null)
tries=0
while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 300 ]; do
  case $tries in
    0) kill -INT "$pid" ;;
    100) kill -QUIT "$pid" ;;
  esac
  tries=$((tries + 1))
  sleep 0.1
done
rm -rf "$2"
`;

export interface Guardian {
  /** Call it after an orderly stop. */
  release(): void;
}

/**
 * Stops the server in `dataDirectory` and removes `scratchDirectory` once this process has ended: by returning, by
 * process.exit(), by a signal, even by SIGKILL. A shell waits for that from outside, so nothing is hooked into this
 * process: the application keeps its own handling of SIGINT and SIGTERM.
 */
export function startGuardian(dataDirectory: string, scratchDirectory: string): Guardian {
  // Windows has no such shell. There the exit event covers everything but being killed.
  if (process.platform === 'win32') return { release() {} };

  // Its own session, or Ctrl-C in the terminal would end it together with this process.
  const shell = spawn('/bin/sh', ['-c', script, 'postcommit-guardian', dataDirectory, scratchDirectory], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
    cwd: '/',
  });
  shell.on('error', () => {}); // No /bin/sh: the server works, only unguarded.
  shell.stdin.on('error', () => {});
  letProcessEnd(shell);
  return {
    release() {
      shell.stdin.end('released\n');
    },
  };
}
