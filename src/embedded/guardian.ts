import { spawn } from 'node:child_process';
import { letProcessEnd } from './program.ts';

// The script reads from a pipe that only this process keeps open. A line means "released, nothing to do". End of file without
// a line means that this process has ended, for whatever reason.
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
  /** Call it after the server has stopped. */
  release(): void;
}

/**
 * Stops the server in `dataDirectory` and removes `scratchDirectory` when this process has ended: normally, by
 * process.exit(), or by any signal including SIGKILL. A shell process waits for that, so the application keeps its own handling
 * of SIGINT and SIGTERM.
 */
export function startGuardian(dataDirectory: string, scratchDirectory: string): Guardian {
  // Windows has no /bin/sh. There the exit event covers everything except a kill.
  if (process.platform === 'win32') return { release() {} };

  // In its own session: otherwise Ctrl-C in the terminal would end it together with this process.
  const shell = spawn('/bin/sh', ['-c', script, 'postcommit-guardian', dataDirectory, scratchDirectory], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
    cwd: '/',
  });
  shell.on('error', () => {}); // Without /bin/sh the server works, but has no guardian.
  shell.stdin.on('error', () => {});
  letProcessEnd(shell);
  return {
    release() {
      shell.stdin.end('released\n');
    },
  };
}
