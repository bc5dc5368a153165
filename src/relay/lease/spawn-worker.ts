import { existsSync } from 'node:fs';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Worker, type WorkerOptions } from 'node:worker_threads';

/**
 * Starts the thread of heartbeat-worker.ts, whose file is beside this one in the package. Returns `undefined` in a bundle, which does
 * not contain it. Run from TypeScript sources, the thread needs the loader that the process was started with.
 */
export function spawnWorker(options: WorkerOptions): Worker | undefined {
  const own = ownFile();
  const extension = own && /\.[jt]s$/.exec(own)?.[0];
  if (!own || !extension) return undefined;
  const file = new URL(`./heartbeat-worker${extension}`, own.startsWith('file:') ? own : pathToFileURL(own));
  if (!existsSync(fileURLToPath(file))) return undefined;
  // Nothing that is preloaded for the application (--import, --require) is needed on the thread.
  if (extension === '.js') return new Worker(file, { ...options, execArgv: [] });
  if (!process.execArgv.some(isTsx)) return undefined;
  // tsx does not register itself on threads.
  const source = `import('tsx/esm/api').then(({ register }) => (register(), import(${JSON.stringify(file.href)})));`;
  return new Worker(source, { ...options, execArgv: [], eval: true });
}

/** `--import tsx`, or the files of tsx, which the command `tsx` passes on. */
function isTsx(argument: string): boolean {
  return argument === 'tsx' || /[\\/]tsx[\\/]dist[\\/]/.test(argument);
}

/** The file or URL of this module, by the call stack: bundlers warn about `import.meta.url`, which is empty in CommonJS. */
function ownFile(): string | undefined {
  const { prepareStackTrace } = Error;
  try {
    Error.prepareStackTrace = (_error, sites) => sites[0]?.getFileName();
    const file: unknown = new Error().stack;
    return typeof file === 'string' ? file : undefined;
  } catch {
    return undefined;
  } finally {
    Error.prepareStackTrace = prepareStackTrace as NonNullable<typeof prepareStackTrace>;
  }
}
