import { join } from 'node:path';
import { findProgram, isExecutable, runCommand } from './run-command.ts';
import { NotAvailable } from './service.ts';

const javaVersionMin = 17;

/** The full path of `java`. `title`: the server that runs on it, for the error. */
export async function findJava(title: string): Promise<string> {
  const home = process.env.JAVA_HOME;
  const inHome = home ? join(home, 'bin', 'java') : '';
  const java = (await isExecutable(inHome)) ? inHome : await findProgram('java');
  const wanted = `Java ${javaVersionMin} or later`;
  if (java === undefined) throw new NotAvailable(`${wanted} is missing (java), which ${title} runs on`);
  const about = await runCommand(java, ['-version'], process.cwd()).catch((cause) => {
    throw new NotAvailable(`${java} does not run: ${cause.message}`, { cause });
  });
  const major = Number(/version "(\d+)/.exec(about)?.[1] ?? 0);
  if (major < javaVersionMin) throw new NotAvailable(`${title} needs ${wanted}; ${java} is Java ${major}`);
  return java;
}
