import { execFile } from 'node:child_process';
import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

// Where servers live and a user's PATH often does not point.
const furtherFolders = ['/usr/sbin', '/usr/local/sbin', '/opt/homebrew/bin', '/opt/homebrew/sbin'];
const outputCharactersMax = 2_000;

/** The full path of a program, undefined where there is none. */
export async function findProgram(name: string): Promise<string | undefined> {
  const folders = [...(process.env.PATH ?? '').split(delimiter).filter(Boolean), ...furtherFolders];
  for (const folder of folders) {
    const path = join(folder, name);
    if (await isExecutable(path)) return path;
  }
  return undefined;
}

export async function isExecutable(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** What it wrote, both streams. Rejects with the end of that when it fails. */
export function runCommand(program: string, args: string[], cwd: string): Promise<string> {
  const env = { ...process.env, LC_ALL: 'C', DEBIAN_FRONTEND: 'noninteractive' };
  return new Promise((resolve, reject) => {
    execFile(program, args, { cwd, env, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      const output = `${stdout}${stderr}`;
      if (error === null) return resolve(output);
      const said = output.trim().slice(-outputCharactersMax) || error.message;
      reject(new Error(`${program} ${args[0] ?? ''} failed: ${said}`, { cause: error }));
    });
  });
}
